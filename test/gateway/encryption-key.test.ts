import { randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { diagnoseGateway } from '../../src/doctor/gateway/diagnose-gateway.ts';
import { claimGatewayNames } from '../../src/gateway/certificates/gateway-names.ts';
import { keyState, replaceLostKey, rotateKey } from '../../src/gateway/offline/encryption-keys.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { changeKey } from '../../src/gateway/store/stored-secrets.ts';
import { SecretsBox } from '../../src/lib/secrets-box.ts';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { closeOnce } from '../support/close-once.ts';
import { makeDataDir, startTestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { recordingLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let dataDir: string;
let keyFile: string;
beforeEach(async () => {
  dataDir = await makeDataDir();
  onTestFinished(() => rmSync(dataDir, { recursive: true }));
  keyFile = join(dataDir, 'gateway', 'encryption.key');
});

const settings = () => loadGatewayServerSettings({ DATA_DIR: dataDir, GATEWAY_DOMAIN: 'localhost' }, temporaryFolder());
const keyIn = (file: string) => new SecretsBox(Buffer.from(readFileSync(file, 'utf8'), 'base64'));

async function start() {
  const { log, lines } = recordingLog();
  const gateway = await startTestGateway({ dataDir, log });
  const close = closeOnce(() => gateway.close());
  onTestFinished(close);
  const errors = () => lines.filter(({ level }) => Number(level) >= 50);
  return { ...gateway, close, errors, api: await GatewayClient.of(gateway) };
}

/** A vault with secrets, and what else is encrypted. */
async function fill({ api }: Awaited<ReturnType<typeof start>>, secrets = 3): Promise<string> {
  const vault = (await api.call('POST', '/vaults', { name: `vault-${secrets}` })).body.id as string;
  for (let at = 0; at < secrets; at += 1) await addSecret(api, vault, `secret-${at}`);
  const target = {
    webhook: { url: 'https://8.8.8.8/hook', signing_secret: 'whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=' },
  };
  expect((await api.call('POST', '/event_destinations', { format: 'json', target })).status).toBe(201);
  return vault;
}

const addSecret = (api: GatewayClient, vault_id: string, name: string) =>
  api.call('POST', '/vault_secrets', { vault_id, name, value: `value of ${name}` });

/** Every value of vaults by its name, as a key alone decrypts it. */
function secretsBy(box: SecretsBox): Record<string, string | null> {
  const store = openGatewayStore(settings());
  try {
    const rows = store.vaultSecrets.where('id > ?', ['']);
    return Object.fromEntries(
      rows.map(({ id, name, value }) => [name, box.opens(value, id) ? box.open(value, id) : null]),
    );
  } finally {
    store.database.close();
  }
}

it('a key is changed under writes, and every secret is readable by exactly the new one', async () => {
  const gateway = await start();
  const vault = await fill(gateway);
  const before = keyIn(keyFile);
  copyFileSync(keyFile, join(dataDir, 'before'));
  const written: string[] = [];
  let isDone = false;
  const writer = (async () => {
    for (let at = 0; !isDone || at < 5; at += 1) {
      const name = `written-${at}`;
      if ((await addSecret(gateway.api, vault, name)).status === 201) written.push(name);
    }
  })();
  const { id, kept, values } = await rotateKey(settings());
  isDone = true;
  await writer;
  expect(values).toBeGreaterThan(3);
  const after = keyIn(keyFile);
  expect(after.keyIds.current).toBe(id);
  const secrets = secretsBy(after);
  for (const name of [...written, 'secret-0', 'secret-1', 'secret-2']) expect(secrets[name]).toBe(`value of ${name}`);
  expect(Object.values(secretsBy(before)).filter((value) => value !== null)).toEqual([]);
  expect(readFileSync(kept ?? '')).toEqual(readFileSync(join(dataDir, 'before')));
  // The gateway goes on with it, and so does the next start.
  expect(gateway.store.box.keyIds).toEqual({ current: id, others: [] });
  await gateway.close();
  const next = await start();
  expect(next.errors()).toEqual([]);
  expect(await keyState(settings())).toEqual({ current: id, others: [], undecryptable: null });
});

it('a change that was interrupted is completed by the next one', async () => {
  const gateway = await start();
  await fill(gateway);
  const nextFile = `${keyFile}.next`;
  // Before the database was changed.
  writeFileSync(nextFile, `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 });
  const { current: planned } = keyIn(nextFile).keyIds;
  await gateway.close();
  const restarted = await start();
  expect(await keyState(settings())).toMatchObject({ others: [planned], undecryptable: null });
  // After it.
  const next = Buffer.from(readFileSync(nextFile, 'utf8'), 'base64');
  expect(await changeKey(restarted.store, next)).toBeGreaterThan(3);
  await restarted.close();
  expect((await start()).errors()).toEqual([]);
  // After the old key was kept.
  const kept = `${keyFile}.until-${new Date().toISOString().slice(0, 10)}-${keyIn(keyFile).keyIds.current}`;
  linkSync(keyFile, kept);
  expect(await rotateKey(settings())).toEqual({ id: planned, values: null, kept });
  expect(existsSync(nextFile)).toBe(false);
  expect(secretsBy(keyIn(keyFile))['secret-0']).toBe('value of secret-0');
});

async function doctorSays(): Promise<string[]> {
  const findings = await diagnoseGateway(settings());
  return findings.filter(({ check }) => check === 'encryption-key').map(({ status, detail }) => `${status}: ${detail}`);
}

it('with another key, nothing is encrypted, and all that says so does', async () => {
  const gateway = await start();
  const vault = await fill(gateway);
  expect(await doctorSays()).toEqual(['ok: it is the one of the database']);
  await gateway.close();
  writeFileSync(keyFile, randomBytes(32).toString('base64'));
  const wrong = await start();
  expect(wrong.errors()).toMatchObject([
    {
      msg: 'encryption key does not match what is encrypted in the database',
      foreign_key: true,
      values: ['secret-0', 'secret-1', 'secret-2'],
      destinations: ['https://8.8.8.8'],
    },
  ]);
  const refused = await addSecret(wrong.api, vault, 'another');
  expect(refused.status).toBe(503);
  expect(refused.body.msg).toMatch(
    /^nothing was changed: the encryption key is not the one that the database was used/,
  );
  // What needs no key goes on: a key that leaked must be revoked now.
  const { body } = await wrong.api.call('GET', '/api_keys');
  expect((await wrong.api.call('DELETE', `/api_keys/${(body.keys as { id: string }[])[0]?.id}`)).status).toBe(204);
  expect(await doctorSays()).toEqual([
    expect.stringMatching(/^failed: it is not the one that the database was used with, .* 3 secrets of vaults/),
  ]);
});

it('replacing a lost key orders certificates of the own names again, and lists what must be set again', async () => {
  const gateway = await start();
  const vault = await fill(gateway, 1);
  const { store } = gateway;
  await claimGatewayNames(store, ['api.localhost'], { authority: 'local', private_key_type: 'ecdsa' });
  const [row] = store.ownDomains.managed();
  if (!row) throw new Error('no row');
  await store.database.write(() => {
    const common = { id: 'cert_1', created_at: '', description: null, metadata: null, issued_at: store.now() };
    store.tlsCertificates.insertWithKey({ ...common, certificate_pem: '', facts: {} as never }, 'key');
    store.ownDomains.update({ ...row, certificate_id: 'cert_1', job: null, due_at: null });
  });
  expect(await replaceLostKey(settings()).catch(String)).toBeNull();
  await gateway.close();
  rmSync(keyFile);
  await expect(start()).rejects.toThrow(/keys replace-lost/);
  expect(await replaceLostKey(settings())).toEqual({
    isForeignKey: false,
    certificates: ['api.localhost'],
    vaultValues: ['secret-0'],
    destinations: ['https://8.8.8.8'],
  });
  const stored = openGatewayStore(settings());
  expect(stored.ownDomains.managed()).toMatchObject([{ domain: 'api.localhost', job: { attempts: 0 } }]);
  stored.database.close();
  const again = await start();
  expect((await addSecret(again.api, vault, 'another')).status).toBe(201);
  expect(readdirSync(join(dataDir, 'gateway')).filter((name) => name.startsWith('encryption'))).toEqual([
    'encryption.key',
  ]);
});
