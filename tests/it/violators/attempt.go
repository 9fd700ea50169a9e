// As attempt.py, in Go.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func connect(network, address string) error {
	c, err := net.DialTimeout(network, address, 20*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
	_, err = c.Read(make([]byte, 10))
	return err
}

func work(seconds float64, own string) error {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for n := 0; time.Now().Before(end); n++ {
		p := filepath.Join(own, "go-"+strconv.Itoa(n%7))
		if err := os.WriteFile(p+".new", []byte("x"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(p+".new", p); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(own, "go-dir", "a"), 0o755); err != nil {
			return err
		}
		if _, err := os.ReadDir(own); err != nil {
			return err
		}
		_, _ = os.ReadFile("/etc/passwd")
		_, _ = os.ReadFile("/nonexistent/x")
		if err := exec.Command("true").Run(); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func attempt(word, arg string) error {
	parts := strings.SplitN(arg, "::", 2)
	switch word {
	case "read":
		_, err := os.ReadFile(arg)
		return err
	case "relative":
		if err := os.Chdir(parts[0]); err != nil {
			return err
		}
		_, err := os.ReadFile(parts[1])
		return err
	case "write":
		return os.WriteFile(arg, []byte("x"), 0o644)
	case "exec":
		return exec.Command(arg).Run()
	case "unix":
		return connect("unix", arg)
	case "host":
		return connect("tcp", arg+":80")
	case "raw":
		return connect("tcp", arg+":443")
	case "work":
		s, _ := strconv.ParseFloat(parts[0], 64)
		return work(s, parts[1])
	case "sleep":
		s, _ := strconv.ParseFloat(arg, 64)
		time.Sleep(time.Duration(s * float64(time.Second)))
		return nil
	}
	return fmt.Errorf("what is %s?", word)
}

func main() {
	for i := 1; i+1 < len(os.Args); i += 2 {
		fmt.Println(os.Args[i], os.Args[i+1], attempt(os.Args[i], os.Args[i+1]))
	}
}
