import { once } from 'node:events';
import { connect } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { connectToGateway } from '../../../src/agent/connectors/gateway-socket.ts';
import { directDial } from '../../../src/lib/network/dial.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { SessionTickets } from '../../../src/lib/tls/session-tickets.ts';
import { makeDataDir, startTestGateway, type TestGateway } from '../../support/gateway.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');

/** Connects as an agent does: whether TLS was resumed, and a ticket for the next time. */
async function connectAgent({ sessionCa }: TestGateway, port: number, tlsSession: Buffer | null = null) {
  let ticket: Buffer | null = null;
  let ticketed = () => {};
  const hasTicket = new Promise<void>((resolve) => {
    ticketed = resolve;
  });
  const address = { host: '127.0.0.1', port, serverName: 'connect.localhost' };
  const onTlsSession = (session: Buffer) => {
    ticket = session;
    ticketed();
  };
  const options = { address, dial: directDial(), ca: sessionCa, tlsSession, onTlsSession };
  const socket = await connectToGateway(options, AbortSignal.timeout(10_000));
  const isReused = socket.isSessionReused();
  if (!isReused) await hasTicket;
  socket.destroy();
  return { isReused, ticket: ticket as Buffer | null };
}

it('a device resumes TLS at another gateway of its cluster, at either port, and after a restart', async () => {
  const start = async (dataDir: string) => {
    const gateway = await startTestGateway({ encryptionKey: KEY, dataDir });
    onTestFinished(() => gateway.close());
    return gateway;
  };
  const [one, two] = [await start(await makeDataDir()), await start(await makeDataDir())];
  const first = await connectAgent(one, one.sessionPort);
  expect(first.isReused).toBe(false);
  expect((await connectAgent(two, two.sessionPort, first.ticket)).isReused).toBe(true);
  expect((await connectAgent(two, two.httpsPort, first.ticket)).isReused).toBe(true);
  await one.close();
  const again = await start(one.dataDir);
  expect((await connectAgent(again, again.sessionPort, first.ticket)).isReused).toBe(true);

  // What an agent was given opens no endpoint's name.
  const { ca, session } = { ca: two.sessionCa, session: first.ticket ?? Buffer.alloc(0) };
  const client = connect({ host: '127.0.0.1', port: two.httpsPort, servername: 'cam.localhost', ca, session });
  await once(client, 'secureConnect');
  expect(client.isSessionReused()).toBe(false);
  client.destroy();
});

it('keys change every week, and are those of the gateway', () => {
  let now = 0;
  const box = new SecretsBox(Buffer.alloc(32, 1));
  const tickets = new SessionTickets(box, () => now);
  const keys = () => String(tickets.options.ticketKeys?.toString('hex'));
  const first = keys();
  now = 6 * 86_400_000;
  expect(keys()).toBe(first);
  now = 8 * 86_400_000;
  expect(keys()).not.toBe(first);
  const other = new SessionTickets(new SecretsBox(Buffer.alloc(32, 2)), () => 0);
  expect(other.options.ticketKeys?.toString('hex')).not.toBe(first);
});
