/**
 * The service behind the tunnel: a few bytes at /, as many as asked at /bytes/N; what is sent to it is read to its end.
 * It shares the machine with what is measured: requests for / are answered without Node's HTTP server, at half of the cost.
 */
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Socket } from 'node:net';

const HELLO = 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello';
const SMALL = 'GET / ';
const HEAD_END = '\r\n\r\n';
const chunk = Buffer.alloc(64 * 1024, 'x');

const bulk = createHttpServer((req, res) => {
  if (req.method === 'POST') {
    req.resume().once('end', () => res.writeHead(200, { 'content-length': 0 }).end());
    return;
  }
  if (req.url === '/') {
    res.end('hello');
    return;
  }
  let left = Number(/^\/bytes\/(\d+)$/.exec(req.url ?? '')?.[1]);
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
bulk.keepAliveTimeout = 60_000;

/** Says hello to requests for /, and leaves the connection to Node's server with the first one for something else. */
function greet(socket: Socket): void {
  let unread = '';
  const answer = (bytes: Buffer) => {
    unread += bytes.toString('latin1');
    for (let end = unread.indexOf(HEAD_END); end >= 0 && unread.startsWith(SMALL); end = unread.indexOf(HEAD_END)) {
      unread = unread.slice(end + HEAD_END.length);
      socket.write(HELLO, 'latin1');
    }
    if (unread.startsWith(SMALL) || SMALL.startsWith(unread)) return;
    socket.off('data', answer);
    bulk.emit('connection', socket);
    socket.unshift(Buffer.from(unread, 'latin1'));
  };
  socket.on('data', answer);
  // A client that goes away in the middle of a request.
  socket.on('error', () => socket.destroy());
}

const server = createServer({ noDelay: true }, greet);
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ port: (server.address() as AddressInfo).port }));
});
