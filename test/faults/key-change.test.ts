import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { SecretsBox } from '../../src/lib/secrets-box.ts';
import { CLI } from '../support/agent-process.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { measured } from '../support/measured.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

const CHANGES = rounds({ short: 4, full: 40 });
const SEED = Number(process.env.KEYS_SEED ?? Math.floor(Math.random() * 1_000_000));
const WRITERS = 64;
/** The command takes about half a second; it is killed at any moment of that. */
const KILLED_WITHIN_MS = 1_200;

it(`every secret is readable by exactly the newest of ${CHANGES} keys, over kill -9 of gateway and command (seed ${SEED})`, {
  timeout: 60_000 + CHANGES * 10_000,
}, async () => {
  const random = seeded(SEED);
  const folder = temporaryFolder();
  let apiKey = '';
  const gateway = await GatewayProcess.start(
    folder,
    { GATEWAY_DOMAIN: 'localhost' },
    {
      prepare: (store) => {
        apiKey = issueApiKey(store, {}).token;
      },
    },
  );
  onTestFinished(() => gateway.kill());
  const { httpsPort, sessionCa } = gateway;
  const place = { apiUrl: `https://api.localhost:${httpsPort}`, httpsPort, sessionCa };
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());
  const client = new GatewayClient(place, '127.0.0.1', apiKey, agent);
  const { body: vault } = await client.call('POST', '/vaults', { name: 'cameras' });

  let isOver = false;
  const acknowledged: string[] = [];
  const write = async (writer: number) => {
    for (let count = 0; !isOver; count += 1) {
      const name = `key-${writer}-${count}`;
      const answer = await client
        .call('POST', '/vault_secrets', { vault_id: vault.id, name, value: `value of ${name}` })
        .catch(() => null); // killed meanwhile
      if (answer?.status === 201) acknowledged.push(name);
      else await delay(20);
    }
  };
  const writers = Array.from({ length: WRITERS }, (_, at) => write(at));
  const begunAt = performance.now();
  let downMs = 0;
  let kills = 0;
  for (let count = 0; count < CHANGES; count += 1) {
    const command = spawn(process.execPath, [CLI, 'gateway', 'keys', 'rotate'], {
      env: { PATH: process.env.PATH, DATA_DIR: join(folder, 'data'), GATEWAY_DOMAIN: 'localhost' },
      cwd: folder,
      stdio: 'ignore',
    });
    const ended = once(command, 'exit');
    if (random() < 0.6) {
      await Promise.race([delay(random() * KILLED_WITHIN_MS), ended]);
      command.kill('SIGKILL');
      kills += 1;
    }
    const stoppedAt = performance.now();
    if (random() < 0.5) await gateway.restart();
    downMs += performance.now() - stoppedAt;
    await ended;
  }
  await rotated(folder);
  const rate = acknowledged.length / ((performance.now() - begunAt - downMs) / 1000);
  isOver = true;
  await Promise.all(writers);
  await gateway.stop();

  const of = (name: string) => join(folder, 'data', 'gateway', name);
  const keys = readdirSync(of('.')).filter((name) => name.startsWith('encryption.key'));
  const box = (name: string) => new SecretsBox(Buffer.from(readFileSync(of(name), 'utf8'), 'base64'));
  const store = openGatewayStore({ dataDir: join(folder, 'data'), encryptionKey: null });
  const rows = store.vaultSecrets.where('id > ?', ['']);
  store.database.close();
  const readable = (by: SecretsBox) => rows.filter(({ id, value }) => by.opens(value, id)).map(({ name }) => name);
  expect(keys).not.toContain('encryption.key.next');
  expect(new Set(readable(box('encryption.key')))).toEqual(new Set(rows.map(({ name }) => name)));
  for (const name of keys.filter((each) => each !== 'encryption.key')) expect(readable(box(name))).toEqual([]);
  const stored = new Set(rows.map(({ name }) => name));
  expect(acknowledged.filter((name) => !stored.has(name))).toEqual([]);
  measured({
    fault: 'changes of the encryption key, with kill -9 of gateway and command',
    tried: acknowledged.length,
    note: `${CHANGES} changes, ${kills} killed, ${Math.round(rate)} writes a second while the gateway ran`,
  });
});

/** The last change is not interrupted. */
async function rotated(folder: string): Promise<void> {
  const command = spawn(process.execPath, [CLI, 'gateway', 'keys', 'rotate'], {
    env: { PATH: process.env.PATH, DATA_DIR: join(folder, 'data'), GATEWAY_DOMAIN: 'localhost' },
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  command.stderr.on('data', (chunk) => {
    said += chunk;
  });
  const [code] = await once(command, 'exit');
  expect(said).toContain('is in use');
  expect(code).toBe(0);
}
