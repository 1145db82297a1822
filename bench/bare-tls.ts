/**
 * A plain TLS server with the gateway's options and kind of certificate, which sends back what it gets. Argument: its folder.
 * Prints {address, caFile}.
 */
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:tls';
import { openLocalCa } from '../src/gateway/certificates/local-ca/local-ca.ts';
import { TLS_SERVER_OPTIONS } from '../src/lib/tls/tls-options.ts';
import { silentLog } from '../test/support/silent-log.ts';

const ca = await openLocalCa(process.argv[2] ?? '', silentLog);
const { cert, key } = await ca.issue(['127.0.0.1']);
const server = createServer({ ...TLS_SERVER_OPTIONS, cert, key }, (socket) => {
  socket.on('error', () => {}).pipe(socket);
});
server.listen(0, '127.0.0.1', 4096, () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ address: `127.0.0.1:${port}`, caFile: ca.caFile }));
});
