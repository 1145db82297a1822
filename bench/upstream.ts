/**
 * The upstream: a few bytes at /, N bytes at /bytes/N. It reads every request body to the end. SIGUSR2 prints how many bytes of
 * bodies it has received, by path.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const received: Record<string, number> = {};
const chunk = Buffer.alloc(64 * 1024, 'x');

const server = createServer((req, res) => {
  if (req.method === 'POST') {
    const { url = '' } = req;
    req.on('data', (bytes: Buffer) => {
      received[url] = (received[url] ?? 0) + bytes.length;
    });
    req.once('end', () => res.writeHead(200, { 'content-length': 0 }).end());
    return;
  }
  const bytes = /^\/bytes\/(\d+)$/.exec(req.url ?? '');
  if (!bytes) {
    res.writeHead(200, { 'content-type': 'text/plain', 'content-length': 5 });
    res.end('hello');
    return;
  }
  let left = Number(bytes[1]);
  res.writeHead(200, { 'content-length': left });
  const pump = () => {
    while (left > 0) {
      const piece = left < chunk.length ? chunk.subarray(0, left) : chunk;
      left -= piece.length;
      if (!res.write(piece)) return;
    }
    res.end();
  };
  res.on('drain', pump);
  pump();
});
process.on('SIGUSR2', () => console.log(JSON.stringify(received)));
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ port: (server.address() as AddressInfo).port }));
});
