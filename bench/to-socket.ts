/** Leads TCP connections to a socket in the file system, also of another network namespace. Prints {address}. Arguments: its host, the socket. */
import { type AddressInfo, connect, createServer } from 'node:net';
import { pipeline } from 'node:stream';

const [host = '', path = ''] = process.argv.slice(2);
const server = createServer((client) => {
  const socket = connect(path);
  pipeline(client, socket, client, () => {});
});
server.listen(0, host, () =>
  console.log(JSON.stringify({ address: `${host}:${(server.address() as AddressInfo).port}` })),
);
process.once('SIGTERM', () => process.exit());
