import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { openLocalCa } from '../src/gateway/certificates/local-ca/local-ca.ts';
import { TLS_CLIENT_OPTIONS, TLS_SERVER_OPTIONS } from '../src/lib/tls/tls-options.ts';
import { silentLog } from '../test/support/silent-log.ts';
import { median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';

const HANDSHAKES = 200;
const ROUNDS = 5;

/** Groups of key exchange: as usual with this Node.js, which may have the hybrid with ML-KEM, and without it. */
const GROUPS = { usual: TLS_CLIENT_OPTIONS.ecdhCurve, 'X25519 alone': 'X25519:P-256:P-384' };

/** Processor time and bytes of TLS handshakes, full and resumed, of client and server together. */
export async function benchKeyExchange(): Promise<void> {
  const ca = await openLocalCa(temporaryFolder(), silentLog);
  const { cert, key } = await ca.issue(['127.0.0.1']);
  const server = createServer({ ...TLS_SERVER_OPTIONS, cert, key }, (socket) => {
    socket.on('error', () => {}).end('seen');
  });
  let bytes = 0;
  server.on('connection', (socket: Socket) => {
    socket.once('close', () => {
      bytes += socket.bytesRead + socket.bytesWritten;
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const shake = async (ecdhCurve: string | undefined, session: Buffer | null) => {
    const socket: TLSSocket = connect({
      ...{ port, host: '127.0.0.1', ca: ca.caPem, ...(ecdhCurve !== undefined && { ecdhCurve }) },
      ...(session && { session }),
    });
    let ticket: Buffer | null = null;
    socket.on('session', (given: Buffer) => {
      ticket = given;
    });
    let isResumed = false;
    socket.once('secureConnect', () => {
      isResumed = socket.isSessionReused();
    });
    socket.resume();
    await once(socket, 'close');
    if (isResumed !== (session !== null)) throw new Error(`resumed: ${isResumed}`);
    return ticket;
  };

  const ways = Object.entries(GROUPS).flatMap(([group, curves]) =>
    [false, true].map((resumes) => ({ group, curves, resumes, times: [] as number[], sizes: [] as number[] })),
  );
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { curves, resumes, times, sizes } of ways) {
      const session = resumes ? await shake(curves, null) : null;
      bytes = 0;
      const began = process.cpuUsage();
      for (let count = 0; count < HANDSHAKES; count++) await shake(curves, session);
      const { user, system } = process.cpuUsage(began);
      // In the first one, V8 compiles.
      if (round > 0) times.push((user + system) / 1000 / HANDSHAKES);
      sizes.push(bytes / HANDSHAKES);
    }
  }
  server.close();
  section(
    `TLS 1.3 handshakes with OpenSSL ${process.versions.openssl} (client and server together, median of ${ROUNDS} rounds)`,
    ways.map(({ group, resumes, times, sizes }) => {
      return [`${resumes ? 'resumed' : 'full'}, ${group}`, ms(median(times)), `${Math.round(median(sizes))} bytes`];
    }),
  );
}
