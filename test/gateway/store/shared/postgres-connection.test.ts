import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { PostgresConnection } from '../../../../src/gateway/store/shared/postgres-connection.ts';
import { DatabaseAway } from '../../../../src/gateway/store/sql/database-problems.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

/** "AuthenticationOk" and "ReadyForQuery": https://www.postgresql.org/docs/current/protocol-message-formats.html. */
const READY = Buffer.from('520000000800000000' + '5a0000000549', 'hex');

it('takes the first of several hosts that serves, and that can be written to', unless(NO_POSTGRES), async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.kill());
  const reach = async (query: string) => {
    const connection = new PostgresConnection(server.url(`127.0.0.1:1,${server.address}`) + query);
    onTestFinished(() => connection.close());
    return connection.ask<{ one: number }>('SELECT 1 AS one');
  };
  expect(await reach('?target_session_attrs=read-write')).toEqual([{ one: 1 }]);
  // This server has no TLS: libpq goes on without it, or does not.
  expect(await reach('?sslmode=prefer')).toEqual([{ one: 1 }]);
  await expect(reach('?sslmode=require')).rejects.toThrow(/SSL/);
});

it('uses what a CA file had while it is away', async () => {
  const file = join(temporaryFolder(), 'ca.pem');
  const server = createServer((socket) => void socket.end()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const url = `postgres://user@127.0.0.1:${port}/database?sslmode=verify-full&sslrootcert=${file}`;
  const connection = new PostgresConnection(url);
  const asked = () => connection.ask('SELECT 1').catch((error: Error) => error.message);
  expect(await asked()).toContain('ENOENT');
  writeFileSync(file, 'a CA');
  expect(await asked()).not.toContain('ENOENT');
  rmSync(file);
  expect(await asked()).not.toContain('ENOENT');
});

it('leaves no connection behind when it is closed while it connects', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const connection = new PostgresConnection(`postgres://user@127.0.0.1:${port}/database`);
  const asked = connection.ask('SELECT 1');
  const [client] = (await once(server, 'connection')) as [Socket];
  await once(client, 'data');
  await connection.close();
  const isOver = once(client, 'close');
  client.write(READY);
  await expect(asked).rejects.toThrow(DatabaseAway);
  client.resume();
  await isOver;
});
