// As attempt.py, in Node.
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { execFileSync } from "node:child_process";

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

function connect(options) {
	return new Promise((resolve, reject) => {
		const s = net.connect(options, () => s.write("GET / HTTP/1.0\r\n\r\n"));
		s.on("data", resolve).on("error", reject).on("close", () => reject(new Error("closed")));
	});
}

async function work(seconds, own) {
	const end = Date.now() + seconds * 1000;
	for (let n = 0; Date.now() < end; n++) {
		const p = path.join(own, `node-${n % 7}`);
		fs.writeFileSync(p + ".new", JSON.stringify({ n }));
		fs.renameSync(p + ".new", p);
		await fs.promises.readFile(p);
		fs.mkdirSync(path.join(own, "node-dir", "a"), { recursive: true });
		fs.readdirSync(own);
		fs.readFileSync("/etc/passwd");
		fs.existsSync("/nonexistent/x");
		execFileSync("true");
		await sleep(20);
	}
}

const words = {
	read: (a) => fs.readFileSync(a),
	relative: (a) => { const [d, n] = a.split("::"); process.chdir(d); return fs.readFileSync(n); },
	write: (a) => fs.writeFileSync(a, "x"),
	exec: (a) => execFileSync(a),
	unix: (a) => connect({ path: a }),
	host: (a) => connect({ host: a, port: 80 }),
	raw: (a) => connect({ host: a, port: 443 }),
	work: (a) => { const [s, d] = a.split("::"); return work(Number(s), d); },
	sleep: (a) => sleep(Number(a) * 1000),
};

const args = process.argv.slice(2);
for (let i = 0; i + 1 < args.length; i += 2) {
	try {
		await words[args[i]](args[i + 1]);
		console.log(args[i], args[i + 1], "ok");
	} catch (e) {
		console.log(args[i], args[i + 1], String(e));
	}
}
