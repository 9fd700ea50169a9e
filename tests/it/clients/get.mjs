// One GET with fetch, https or a raw socket: node get.mjs fetch|https|tcp URL. Prints the body, or "error: ..." and exits 1.
import { readFileSync } from "node:fs";
import https from "node:https";
import net from "node:net";

const [how, url] = process.argv.slice(2);

function fail(e) {
	console.log("error:", e.code ?? "", e.cause?.code ?? "", e.cause?.message ?? e.message);
	process.exit(1);
}

if (how === "fetch") {
	// NODE_EXTRA_CA_CERTS is in the environment
	fetch(url).then(async (r) => console.log(`${r.status}\n${await r.text()}`)).catch(fail);
} else if (how === "https") {
	https.get(url, { ca: readFileSync(process.env.SSL_CERT_FILE) }, (r) => {
		let body = "";
		r.on("data", (d) => { body += d; });
		r.on("end", () => console.log(`${r.statusCode}\n${body}`));
	}).on("error", fail);
} else {
	const u = new URL(url);
	const s = net.connect({ host: u.hostname, port: Number(u.port) }, () => s.write("GET / HTTP/1.0\r\nHost: x\r\n\r\n"));
	s.on("data", (d) => process.stdout.write(d)).on("error", fail);
}
