/**
 * Full TLS handshakes as fast as one process allows, each on a new connection and without session resumption.
 * Arguments: port, server name, seconds, concurrency. Prints {handshakes, seconds}.
 */
import { connect } from 'node:tls';

const [port = '', servername = '', seconds = '', atOnce = ''] = process.argv.slice(2);
const started = performance.now();
let handshakes = 0;

const isOver = () => performance.now() - started > Number(seconds) * 1000;

function shake(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port: Number(port), servername, rejectUnauthorized: false });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      handshakes += 1;
      socket.destroy();
    });
    socket.once('close', () => resolve());
  });
}

async function worker(): Promise<void> {
  while (!isOver()) await shake();
}

await Promise.all(Array.from({ length: Number(atOnce) }, worker));
console.log(JSON.stringify({ handshakes, seconds: (performance.now() - started) / 1000 }));
