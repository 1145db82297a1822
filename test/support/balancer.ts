import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

const CONNECT_MS = 1000;

/**
 * As a load balancer in front of several gateways: passes each connection to the next one that accepts it.
 *
 * @param addresses `host:port`
 */
export async function startBalancer(
  addresses: readonly string[],
  port = 0,
): Promise<{ address: string; close: () => void }> {
  let next = 0;
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    client.on('error', () => {}).once('close', () => clients.delete(client));
    const attempt = (left: number) => {
      const [host = '', to] = addresses[next++ % addresses.length]?.split(':') ?? [];
      const gateway = connect(Number(to), host);
      let isOpen = false;
      const late = setTimeout(() => gateway.destroy(new Error('no answer')), CONNECT_MS);
      gateway.once('connect', () => {
        clearTimeout(late);
        isOpen = true;
        client.pipe(gateway).pipe(client);
      });
      gateway.on('error', () => {
        if (!isOpen && left > 0) attempt(left - 1);
        else client.destroy();
      });
      gateway.once('close', () => {
        clearTimeout(late);
        if (isOpen) client.destroy();
      });
      client.once('close', () => gateway.destroy());
    };
    attempt(addresses.length);
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.close();
    // An SDK that closes its session leaves the connection open.
    for (const client of clients) client.destroy();
  };
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}
