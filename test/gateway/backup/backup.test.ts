import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { addGatewayCommand } from '../../../src/commands/gateway/gateway-commands.ts';
import { settingsForBackup } from '../../../src/commands/gateway/settings-text.ts';
import { type Gateway, startGateway } from '../../../src/gateway/gateway.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { allOperations } from '../../../src/management/operations.ts';
import { loadGatewayServerSettings } from '../../../src/settings/gateway-settings.ts';
import { fillStore } from '../../support/dashboard.ts';
import { freePorts } from '../../support/free-ports.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const API_URL = 'https://api.localhost';
const PASSPHRASE = 'correct horse battery staple';
const KEY = Buffer.alloc(32, 7).toString('base64');

let folder: string;
let dataDir: string;
let file: string;
let env: Record<string, string>;
/** The same after each start: answers have it. */
let port: number;
let printed: string;
let noted: string;
beforeEach(async () => {
  port = (await freePorts(2)).first;
  folder = temporaryFolder();
  dataDir = join(folder, 'data');
  file = join(folder, 'backup.tar.gz');
  env = {};
  printed = '';
  noted = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    noted += String(text);
    return true;
  });
});
afterEach(() => {
  vi.restoreAllMocks();
});

const settings = () => loadGatewayServerSettings({ DATA_DIR: dataDir, ...env }, folder);

function run(...args: string[]): Promise<unknown> {
  const program = new Command().exitOverride();
  addGatewayCommand(program, { run: async () => {}, settings });
  return program.parseAsync(['gateway', ...args], { from: 'user' });
}

async function start(): Promise<Gateway> {
  const ports = { httpPort: port + 1, httpsPort: port, sessionPort: null, tcpPorts: null };
  const place = { ...settings(), ...ports, settings: settingsForBackup(settings()), apiUrl: API_URL };
  mkdirSync(dataDir, { recursive: true });
  const gateway = await startGateway({ ...place, log: silentLog });
  onTestFinished(() => gateway.close());
  return gateway;
}

/** A gateway with one of everything, and the key of its API. */
async function startFilled(): Promise<{ gateway: Gateway; apiKey: string }> {
  const gateway = await start();
  await fillStore(gateway.store, 'kept');
  const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
  return { gateway, apiKey: token };
}

/** The history is no part of a backup, and goes on, as do counts of what happens now. */
const isKept = ({ path }: { readonly path: string }): boolean => !/\/(history|top_requests)$/.test(path);

/** What each operation of the API that only reads answers, for each resource. */
async function answersOf(gateway: Gateway, apiKey: string): Promise<Record<string, unknown>> {
  const client = new GatewayClient(gateway, '127.0.0.1', apiKey);
  const paths = allOperations()
    .map(({ operation }) => operation)
    .filter(({ method }) => method === 'GET')
    .filter(isKept)
    .map(({ path }) => path);
  const answers: Record<string, unknown> = {};
  const ask = async (path: string) => {
    const { status, body } = await client.call('GET', path);
    // Errors have an id of their own.
    if (status === 200) answers[path] = body;
  };
  for (const path of paths.filter((each) => !each.includes('{'))) await ask(path);
  const ids = new Set(
    JSON.stringify(answers)
      .match(/"id":"[a-z]+_\w{27}"/g)
      ?.map((text) => text.slice(6, -1)),
  );
  for (const { operation } of allOperations().filter((each) => each.operation.method === 'GET')) {
    const { path, idPrefix } = operation;
    if (!/\{id\}/.test(path) || path.includes('{type}') || !isKept(operation)) continue;
    for (const id of ids) if (id.startsWith(idPrefix)) await ask(path.replace('{id}', id));
  }
  return answers;
}

function keepKey(): string {
  const keyFile = join(folder, 'kept.key');
  copyFileSync(join(dataDir, 'gateway', 'encryption.key'), keyFile);
  return keyFile;
}

function passphraseFile(text = PASSPHRASE): string {
  const path = join(temporaryFolder(), 'passphrase');
  writeFileSync(path, `${text}\n`);
  return path;
}

describe('a restored gateway', () => {
  it('answers every request of the API as before, when its data folder is lost', async () => {
    const { gateway, apiKey } = await startFilled();
    const before = await answersOf(gateway, apiKey);
    expect(Object.keys(before).length).toBeGreaterThan(40);
    await run('backup', file);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const ca = gateway.sessionCa;
    await gateway.close();
    const keyFile = keepKey();
    rmSync(dataDir, { recursive: true });

    await run('restore', file, '--key-file', keyFile);
    const again = await start();
    expect(again.sessionCa).toBe(ca);
    expect(await answersOf(again, apiKey)).toEqual(before);
    const { vaultSecrets, vaults } = again.store;
    expect(vaultSecrets.read(vaults.page(null, 1)[0]?.id ?? '', 'password')).toBe('hidden');
  });

  it(
    'answers the same from a shared database, whatever that had, and back in a folder',
    unless(NO_POSTGRES),
    async () => {
      const server = await PostgresServer.start();
      onTestFinished(() => server.end());
      const { gateway, apiKey } = await startFilled();
      const before = await answersOf(gateway, apiKey);
      await run('backup', file);
      await gateway.close();
      const key = readFileSync(join(dataDir, 'gateway', 'encryption.key'), 'utf8').trim();
      rmSync(dataDir, { recursive: true });

      env = { GATEWAY_DATABASE_URL: server.url(), GATEWAY_ENCRYPTION_KEY: key };
      await run('restore', file);
      let again = await start();
      expect(again.sessionCa).toBe(gateway.sessionCa);
      expect(await answersOf(again, apiKey)).toEqual(before);
      await expect(run('restore', file)).rejects.toThrow(
        /serves the shared database: stop it first|uses .*: stop it first/,
      );

      await again.store.database.write(() => issueApiKey(again.store, { description: 'later' }));
      const later = join(folder, 'later.tar.gz');
      await run('backup', later);
      const changed = await answersOf(again, apiKey);
      await again.close();
      rmSync(dataDir, { recursive: true });
      await run('restore', file);
      again = await start();
      expect(await answersOf(again, apiKey)).toEqual(before);
      await again.close();

      // What was replaced can be restored, too.
      const [replaced = ''] = readdirSync(join(dataDir, 'gateway')).filter((name) => name.startsWith('replaced-'));
      await run('restore', join(dataDir, 'gateway', replaced, 'shared-database.tar.gz'));
      again = await start();
      expect(await answersOf(again, apiKey)).toEqual(changed);
      await again.close();

      await server.kill();
      const away = join(folder, 'away.tar.gz');
      await run('backup', away);
      expect(noted).toContain('the dashboard does not know of it: ');
      await expect(run('restore', file)).rejects.toThrow(/shared database does not answer/);

      env = { GATEWAY_ENCRYPTION_KEY: key };
      dataDir = join(folder, 'alone');
      await run('restore', away);
      expect(noted).toContain('set GATEWAY_DATABASE_URL');
      expect(await answersOf(await start(), apiKey)).toEqual(changed);
    },
  );

  it('keeps what it has replaced', async () => {
    const { gateway } = await startFilled();
    await run('backup', file);
    await gateway.store.database.write(() => issueApiKey(gateway.store, { description: 'later' }));
    await gateway.close();
    const present = readFileSync(join(dataDir, 'gateway', 'gateway.db'));
    await run('restore', file);
    const [replaced = ''] = readdirSync(join(dataDir, 'gateway')).filter((name) => name.startsWith('replaced-'));
    expect(readdirSync(join(dataDir, 'gateway', replaced))).not.toContain('ca.pem');
    expect(readFileSync(join(dataDir, 'gateway', replaced, 'gateway.db')).equals(present)).toBe(true);
    expect(noted).toContain(replaced);
    const descriptions = openedDescriptions();
    expect(descriptions).not.toContain('later');
  });

  it('starts after a restore over a damaged database and the log of another one', async () => {
    const { gateway, apiKey } = await startFilled();
    const before = await answersOf(gateway, apiKey);
    await run('backup', file);
    await gateway.close();
    for (const name of ['gateway.db', 'gateway.db-wal']) writeFileSync(join(dataDir, 'gateway', name), 'damaged');
    await expect(start()).rejects.toThrow(/restore a backup with ".* gateway restore FILE"/);
    for (let times = 0; times < 2; times++) await run('restore', file);
    expect(await answersOf(await start(), apiKey)).toEqual(before);
    expect(readdirSync(join(dataDir, 'gateway')).filter((name) => name.startsWith('restoring-'))).toEqual([]);
  });

  it('gets the settings of the backup where there are none, but no key, place or database', async () => {
    env = { GATEWAY_DOMAIN: 'gateway.test', GATEWAY_API_TIMEOUT: '20', GATEWAY_ENCRYPTION_KEY: KEY };
    openGatewayStore({ dataDir, encryptionKey: KEY }).database.close();
    await run('backup', file);
    rmSync(dataDir, { recursive: true });
    env = { GATEWAY_ENCRYPTION_KEY: KEY };
    await run('restore', file);
    expect(readFileSync(join(folder, '.env'), 'utf8')).toBe('GATEWAY_DOMAIN=gateway.test\nGATEWAY_API_TIMEOUT=20\n');
    writeFileSync(join(folder, '.env'), 'GATEWAY_DOMAIN=other.test\n');
    await run('restore', file);
    expect(readFileSync(join(folder, '.env'), 'utf8')).toBe('GATEWAY_DOMAIN=other.test\n');
    expect(noted).toContain('stay as they are: GATEWAY_DOMAIN, GATEWAY_API_TIMEOUT');
  });
});

function openedDescriptions(): (string | null)[] {
  const { apiKeys, database } = openGatewayStore({ dataDir, encryptionKey: null });
  const rows = apiKeys.page(null, 100);
  database.close();
  return rows.map(({ description }) => description);
}

describe('the encryption key', () => {
  it('is in a backup only with --with-key, and no other part shows a secret', async () => {
    env = { GATEWAY_ACME_EAB_KID: 'kid', GATEWAY_ACME_EAB_HMAC: 'c2VjcmV0LWhtYWM' };
    const { gateway } = await startFilled();
    await run('backup', file);
    await run('backup', join(folder, 'keyed.tar.gz'), '--with-key', '--passphrase-file', passphraseFile());
    await gateway.close();
    const key = readFileSync(join(dataDir, 'gateway', 'encryption.key'), 'latin1').trim();
    for (const name of ['backup.tar.gz', 'keyed.tar.gz']) {
      const content = gunzipSync(readFileSync(join(folder, name)));
      for (const secret of [key, 'PRIVATE KEY', 'c2VjcmV0LWhtYWM', PASSPHRASE]) {
        expect(content.includes(secret), secret).toBe(false);
      }
      expect(content.includes(Buffer.from(key, 'base64'))).toBe(false);
    }
    await run('backup', file, '--list');
    expect(noted).toContain('without the encryption key');
    expect(printed).toMatch(/^gateway\.db +\d+ +[0-9a-f]{64}$/m);
    expect(printed).not.toContain('encryption.key');
    printed = '';
    await run('backup', join(folder, 'keyed.tar.gz'), '--list');
    expect(printed).toMatch(/^encryption\.key\.sealed +\d+ /m);
  });

  it('comes back with its passphrase, and with no other', async () => {
    openGatewayStore({ dataDir, encryptionKey: null }).database.close();
    await run('backup', file, '--with-key', '--passphrase-file', passphraseFile());
    const key = readFileSync(join(dataDir, 'gateway', 'encryption.key'), 'utf8');
    rmSync(dataDir, { recursive: true });
    await expect(run('restore', file, '--passphrase-file', passphraseFile('another passphrase'))).rejects.toThrow(
      /wrong passphrase/,
    );
    expect(existsSync(dataDir)).toBe(false);
    await run('restore', file, '--passphrase-file', passphraseFile());
    expect(readFileSync(join(dataDir, 'gateway', 'encryption.key'), 'utf8')).toBe(key);
  });

  it('needs a passphrase of some length', async () => {
    openGatewayStore({ dataDir, encryptionKey: null }).database.close();
    const args = ['backup', file, '--with-key', '--passphrase-file', passphraseFile('short')];
    await expect(run(...args)).rejects.toThrow(/passphrase is too short/);
    expect(existsSync(file)).toBe(false);
  });
});

describe('a restore changes nothing', () => {
  /** A backup, and a folder with another gateway. */
  async function prepare(): Promise<Buffer> {
    openGatewayStore({ dataDir, encryptionKey: null }).database.close();
    await run('backup', file);
    return snapshot();
  }
  const snapshot = () =>
    Buffer.concat(
      readdirSync(join(dataDir, 'gateway'))
        .sort()
        .flatMap((name) => [Buffer.from(name), readFileSync(join(dataDir, 'gateway', name))]),
    );

  it('with a backup that is cut off, changed or something else', async () => {
    const before = await prepare();
    const whole = readFileSync(file);
    const unpacked = gunzipSync(whole);
    const at = unpacked.indexOf('SQLite format 3');
    const flipped = Buffer.from(unpacked);
    flipped[at + 4000] = (flipped[at + 4000] ?? 0) ^ 1;
    const renamed = Buffer.from(
      unpacked.toString('latin1').replace('"domain": "localhost"', '"domain": "localhosT"'),
      'latin1',
    );
    const contents = [
      whole.subarray(0, whole.length / 2),
      whole.subarray(0, -4),
      gzipSync(unpacked.subarray(0, 1024)),
      gzipSync(flipped),
      gzipSync(renamed),
      gzipSync('text'),
      Buffer.from('SQLite format 3\0'),
      Buffer.alloc(0),
    ];
    for (const content of contents) {
      writeFileSync(file, content);
      await expect(run('restore', file)).rejects.toThrow(/is damaged, or no backup/);
    }
    await expect(run('restore', join(folder, 'missing'))).rejects.toThrow(/cannot read/);
    expect(snapshot().equals(before)).toBe(true);
  });

  it('with another key', async () => {
    const before = await prepare();
    const other = join(folder, 'other.key');
    writeFileSync(other, `${KEY}\n`);
    await expect(run('restore', file, '--key-file', other)).rejects.toThrow(/is not the one of/);
    env = { GATEWAY_ENCRYPTION_KEY: KEY };
    await expect(run('restore', file)).rejects.toThrow(/GATEWAY_ENCRYPTION_KEY is not the key of/);
    env = {};
    expect(snapshot().equals(before)).toBe(true);
    rmSync(dataDir, { recursive: true });
    await expect(run('restore', file)).rejects.toThrow(/without its encryption key.*--key-file/);
    expect(existsSync(dataDir)).toBe(false);
  });

  it.each([
    ['"format": 1', '"format": 2'],
    [/"schema": \d\d/, '"schema": 99'],
  ])('with a backup of a newer version (%s)', async (from, to) => {
    const before = await prepare();
    const text = gunzipSync(readFileSync(file)).toString('latin1');
    writeFileSync(file, gzipSync(Buffer.from(text.replace(from, to), 'latin1')));
    await expect(run('restore', file)).rejects.toThrow(/newer version of this program/);
    expect(snapshot().equals(before)).toBe(true);
  });
});

it('GATEWAY_BACKUPS makes a backup at once when there is none, which the overview knows and a restore takes', async () => {
  env = { GATEWAY_BACKUPS: 'backups,3,2' };
  const gateway = await start();
  const backups = join(folder, 'backups');
  const names = () => (existsSync(backups) ? readdirSync(backups) : []);
  await expect.poll(names).toEqual([expect.stringMatching(/^gateway-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.tar\.gz$/)]);
  await expect.poll(() => gateway.store.database.fact('last_backup')).toMatch(/^\d{4}-/);
  await gateway.close();
  const keyFile = keepKey();
  rmSync(dataDir, { recursive: true });
  await run('restore', join(backups, names()[0] ?? ''), '--key-file', keyFile);
  expect((await start()).sessionCa).toBe(gateway.sessionCa);
});
