// One GET with net/http, or a raw TCP connect: get-go URL, get-go tcp HOST:PORT. Prints the body, or "error: ..." and exits 1.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func fail(err error) {
	fmt.Println("error:", err)
	os.Exit(1)
}

func main() {
	if os.Args[1] == "tcp" {
		c, err := net.DialTimeout("tcp", os.Args[2], 30*time.Second)
		if err != nil {
			fail(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\nHost: x\r\n\r\n")
		data, err := io.ReadAll(c)
		if err != nil {
			fail(err)
		}
		os.Stdout.Write(data)
		return
	}
	pem, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		fail(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots},
	}}
	r, err := client.Get(os.Args[1])
	if err != nil {
		fail(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(err)
	}
	fmt.Println(r.StatusCode)
	os.Stdout.Write(body)
}
