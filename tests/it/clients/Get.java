// One GET with java.net.http.HttpClient: java Get URL [PROXYHOST PROXYPORT]. Prints the body, or "error: ..." and exits 1.
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Get {
	static SSLContext trusting(String pem) throws Exception {
		KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
		store.load(null, null);
		try (FileInputStream in = new FileInputStream(pem)) {
			store.setCertificateEntry("lab", CertificateFactory.getInstance("X.509").generateCertificate(in));
		}
		TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
		trust.init(store);
		SSLContext context = SSLContext.getInstance("TLS");
		context.init(null, trust.getTrustManagers(), null);
		return context;
	}

	public static void main(String[] args) throws Exception {
		HttpClient.Builder builder = HttpClient.newBuilder().sslContext(trusting(System.getenv("SSL_CERT_FILE")))
				.connectTimeout(Duration.ofSeconds(30));
		if (args.length > 1)
			builder.proxy(ProxySelector.of(new InetSocketAddress(args[1], Integer.parseInt(args[2]))));
		try {
			HttpResponse<String> r = builder.build().send(HttpRequest.newBuilder(URI.create(args[0])).build(),
					HttpResponse.BodyHandlers.ofString());
			System.out.println(r.statusCode());
			System.out.print(r.body());
		} catch (Exception e) {
			StringBuilder s = new StringBuilder("error:");
			for (Throwable t = e; t != null; t = t.getCause())
				s.append(' ').append(t);
			System.out.println(s);
			System.exit(1);
		}
		System.exit(0);
	}
}
