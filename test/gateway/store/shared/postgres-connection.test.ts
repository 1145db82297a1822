import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { PostgresConnection } from '../../../../src/gateway/store/shared/postgres-connection.ts';
import { DatabaseAway } from '../../../../src/gateway/store/sql/database-problems.ts';

/** "AuthenticationOk" and "ReadyForQuery": https://www.postgresql.org/docs/current/protocol-message-formats.html. */
const READY = Buffer.from('520000000800000000' + '5a0000000549', 'hex');

it('leaves no connection behind when it is closed while it connects', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const connection = new PostgresConnection(`postgres://user@127.0.0.1:${port}/database`);
  const asked = connection.inTurn((ask) => ask('SELECT 1'));
  const [client] = (await once(server, 'connection')) as [Socket];
  await once(client, 'data');
  await connection.close();
  const isOver = once(client, 'close');
  client.write(READY);
  await expect(asked).rejects.toThrow(DatabaseAway);
  client.resume();
  await isOver;
});
