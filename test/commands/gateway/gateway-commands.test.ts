import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { addGatewayCommand } from '../../../src/commands/gateway/gateway-commands.ts';
import { readBackup } from '../../../src/gateway/backup/backup-file.ts';
import { certificateFacts } from '../../../src/gateway/certificates/certificate-facts.ts';
import { readUploadedPair } from '../../../src/gateway/certificates/certificate-upload.ts';
import { claimGatewayNames } from '../../../src/gateway/certificates/gateway-names.ts';
import { IssueError } from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { failedJob } from '../../../src/gateway/certificates/renewal-schedule.ts';
import { personOfLink } from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { recordSignIns } from '../../../src/gateway/sign-in/recorded-sign-ins.ts';
import { useDashboardCode } from '../../../src/gateway/store/command-access.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { Database } from '../../../src/gateway/store/sql/database.ts';
import { secretMatches } from '../../../src/gateway/store/tokens.ts';
import { OneTimeCodes } from '../../../src/lib/http/one-time-code.ts';
import { loadGatewayServerSettings } from '../../../src/settings/gateway-settings.ts';
import { beginning, ISSUER } from '../../support/begun-sign-in.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

let dataDir: string;
let printed: string;
let runs: number;
beforeEach(() => {
  dataDir = temporaryFolder();
  printed = '';
  runs = 0;
  env = {};
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
});
afterEach(() => {
  vi.restoreAllMocks();
});

/** Further settings. */
let env: Record<string, string>;

function run(...args: string[]): Promise<unknown> {
  const program = new Command().exitOverride();
  addGatewayCommand(program, {
    run: async () => {
      runs += 1;
    },
    settings: () => loadGatewayServerSettings({ DATA_DIR: dataDir, ...env }, dataDir),
  });
  return program.parseAsync(['gateway', ...args], { from: 'user' });
}

it('gateway runs a standalone gateway', async () => {
  await run();
  expect(runs).toBe(1);
});

it('gateway api-key create prints only a valid key to standard output, also while the gateway runs', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'create', '--description', 'laptop');
  expect(process.stderr.write).toHaveBeenCalledWith(expect.stringContaining(`of the gateway in ${dataDir}`));
  const [, ksuid = '', secret = ''] = /^([0-9A-Za-z]{27})_([0-9A-Za-z]+)\n$/.exec(printed) ?? [];
  const row = running.apiKeys.get(`ak_${ksuid}`);
  expect(row?.description).toBe('laptop');
  expect(row && secretMatches(secret, row.secret_hash)).toBe(true);
  running.database.close();
});

it('gateway api-key list shows the keys without their values, and revoke makes a running gateway refuse one', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'list');
  expect(process.stderr.write).toHaveBeenCalledWith(expect.stringMatching(/^No API keys\. Create one with: /));
  await run('api-key', 'create', '--description', 'laptop\u001b[2J');
  printed = '';
  await run('api-key', 'create', '--description', 'phone', '--json');
  const made = JSON.parse(printed);
  const [phone, laptop] = running.apiKeys.page(null, 10);
  expect(made).toEqual({ id: phone?.id, description: 'phone', api_key: expect.stringMatching(/^\w{27}_\w+$/) });
  printed = '';
  await run('api-key', 'list');
  expect(printed.split('\n')).toEqual([
    expect.stringMatching(/^ID +CREATED +OWNER +DESCRIPTION$/),
    expect.stringMatching(new RegExp(`^${phone?.id}  \\S+Z +phone$`)),
    expect.stringMatching(new RegExp(`^${laptop?.id}  \\S+Z +laptop\\\\x1b\\[2J$`)),
    '',
  ]);
  printed = '';
  await run('api-key', 'list', '--json');
  expect(JSON.parse(printed)).toEqual([
    { id: phone?.id, created_at: phone?.created_at, description: 'phone', metadata: null, owner_id: null },
    expect.objectContaining({ id: laptop?.id }),
  ]);
  await run('api-key', 'revoke', String(phone?.id));
  expect(running.apiKeys.page(null, 10).map(({ id }) => id)).toEqual([laptop?.id]);
  await expect(run('api-key', 'revoke', String(phone?.id))).rejects.toMatchObject({ exitCode: 4 });
  running.database.close();
});

it('gateway log shows who has changed what, by commands too', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('log');
  expect(process.stderr.write).toHaveBeenCalledWith('No changes.\n');
  await run('api-key', 'create', '--description', 'laptop');
  const id = String(running.apiKeys.page(null, 1)[0]?.id);
  await run('api-key', 'revoke', id);
  await run('sign-ins', 'end', '--host', 'cam.example.com');
  printed = '';
  await run('log', '--object', id, '--since', '1h');
  expect(printed.split('\n')).toEqual([
    expect.stringMatching(new RegExp(`^\\S+Z  gateway  api_key_created ${id}$`)),
    expect.stringMatching(new RegExp(`^\\S+Z  gateway  api_key_deleted ${id}$`)),
    '',
  ]);
  printed = '';
  await run('log', '--type', 'ended_sign_ins', '--json');
  expect(JSON.parse(printed)).toMatchObject([{ after: { host: 'cam.example.com' } }]);
  printed = '';
  await run('log', '--by', 'gateway', '--json');
  expect(JSON.parse(printed)).toMatchObject([
    { after: { description: 'laptop' } },
    {},
    { after: { host: 'cam.example.com' } },
  ]);
  const { database } = running;
  const change = { table: 'agent_commands', before: null, after: { id: 'ts_1', command: 'stop' } };
  await database.write(() => database.noteChange(change), { by: id, from: '192.0.2.1' });
  printed = '';
  await run('log', '--object', 'ts_1', '--until', '2100-01-01');
  expect(printed).toContain(`  ${id} "laptop" (192.0.2.1)  agent_command_created ts_1 stop\n`);
  printed = '';
  await run('log', '--until', '1h');
  expect(printed).toBe('');
  await run('log', '--since', '2100-01-01');
  await expect(run('log', '--since', 'yesterday')).rejects.toMatchObject({ exitCode: 2 });
  running.database.close();
});

it('gateway log --export prints lines of JSON, and GATEWAY_AUDIT_LOG_DAYS says how old they can be', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'create', '--description', 'laptop');
  const [row] = running.auditLog.page(null, 1);
  if (!row) throw new Error('nothing was recorded');
  const created_at = new Date(Date.now() - 8 * 86_400_000).toISOString();
  await running.database.write(() => running.auditLog.update({ ...row, created_at }));
  printed = '';
  await run('log', '--export');
  expect(JSON.parse(printed)).toMatchObject({ event_type: 'api_key_created.v0', object: { description: 'laptop' } });
  for (const [days, kept] of [
    ['9', 2],
    ['7', 2],
  ] as const) {
    env = { GATEWAY_AUDIT_LOG_DAYS: days };
    await run('sign-ins', 'end', '--host', `cam${days}.example.com`);
    printed = '';
    await run('log', '--export');
    expect(printed.trimEnd().split('\n')).toHaveLength(kept);
  }
  expect(printed).not.toContain('laptop');
  running.database.close();
});

it('gateway sign-ins end reaches a running gateway, for a host or for a person', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  const [idp, jo] = ['https://idp.example.com', 'jo'];
  const before = (host: string, subject: string) => running.endedSignIns.before(host, idp, subject, 'as_1');
  const now = Date.now();
  expect(before('cam.example.com', jo)).toBe(0);
  await run('sign-ins', 'end', '--host', 'CAM.example.com');
  await run('sign-ins', 'end', '--issuer', idp, '--subject', jo);
  await expect.poll(() => before('cam.example.com', 'ann')).toBeGreaterThanOrEqual(now);
  expect(before('door.example.com', jo)).toBeGreaterThanOrEqual(now);
  expect(before('door.example.com', 'ann')).toBe(0);
  for (const args of [[], ['--subject', jo], ['--host', 'a', '--issuer', idp], ['--host', 'a', '--subject', jo]]) {
    await expect(run('sign-ins', 'end', ...args)).rejects.toMatchObject({ exitCode: 2 });
  }
  running.database.close();
});

it('gateway sign-ins lists who has signed in, until their sign-ins are ended', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  const record = recordSignIns(running);
  await Promise.all(
    ['jo', 'ann'].map((subject) => record(beginning({ subject, host: `${subject}.example.com` }), '').written),
  );
  await run('sign-ins');
  expect(printed).toMatch(/^SINCE +WHO +AT +ADDRESS +ISSUER +SUBJECT\n\S+Z +ann@example.com +https:\S+ .*\n.* jo\n$/);
  await run('sign-ins', 'end', '--host', 'ann.example.com');
  printed = '';
  await run('sign-ins', '--json');
  expect(JSON.parse(printed)).toMatchObject([{ subject: 'jo', email: 'jo@example.com', host: 'jo.example.com' }]);
  await run('sign-ins', 'end', '--issuer', ISSUER, '--subject', 'jo');
  printed = '';
  await run('sign-ins');
  expect(printed).toBe('');
  running.database.close();
});

it('gateway people manages the people of a running gateway, and prints one-time links', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  const output = async (...args: string[]) => {
    printed = '';
    await run('people', ...args);
    return printed;
  };
  const first = await output('add', 'Jo@Example.com', '--name', 'Jo', '--group', 'family', '--group', 'staff');
  expect(first).toMatch(/^https:\/\/sign-in\.localhost:8443\/link\/\w+\n$/);
  const jo = running.people.byEmail('jo@example.com');
  expect(jo).toMatchObject({ email: 'jo@example.com', name: 'Jo', groups: ['family', 'staff'] });
  expect(await output()).toMatch(/jo@example\.com +Jo +family,staff +no +nothing yet/);
  const second = JSON.parse(await output('link', 'jo@example.com', '--json'));
  const token = (link: string) => new URL(link).pathname.slice('/link/'.length).trim();
  expect([token(first), token(second.link)].map((each) => personOfLink(running, each)?.id)).toEqual([
    undefined,
    jo?.id,
  ]);
  await output('groups', 'jo@example.com', 'guests');
  expect(JSON.parse(await output('list', '--json'))).toEqual([
    expect.objectContaining({ email: 'jo@example.com', groups: ['guests'], passkeys: 0 }),
  ]);
  expect(printed).not.toContain('hash');
  const before = () => running.endedSignIns.before('', 'https://sign-in.localhost', jo?.id ?? '', '');
  expect(before()).toBe(0);
  await output('sign-out', 'jo@example.com');
  await expect.poll(before).toBeGreaterThan(0);
  for (const args of [
    ['add', 'jo@example.com'],
    ['add', 'jo'],
    ['add', 'a@example.com', '--group', 'a b'],
  ]) {
    await expect(output(...args)).rejects.toMatchObject({ exitCode: 2 });
  }
  await output('remove', 'JO@example.com');
  for (const name of ['link', 'groups', 'endpoints', 'sign-out', 'remove']) {
    await expect(output(name, 'jo@example.com')).rejects.toMatchObject({ exitCode: 4 });
  }
  const log = JSON.stringify(running.auditLog.page(null, 20));
  expect(log).toContain('"person_created.v0"');
  expect(log).not.toContain('hash');
  running.database.close();
});

it('gateway dashboard --as prints a link for a person who may use the dashboard', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  const codes = new OneTimeCodes();
  await run('people', 'add', 'jo@example.com', '--name', 'Jo');
  const as = ['dashboard', '--as', 'Jo@example.com'];
  await expect(run(...as)).rejects.toMatchObject({
    exitCode: 2,
    message: expect.stringContaining('dashboard Jo@example.com allow'),
  });
  await run('people', 'dashboard', 'jo@example.com', 'allow');
  printed = '';
  await run(...as, '--json');
  const { id = '' } = running.people.byEmail('jo@example.com') ?? {};
  const { link } = JSON.parse(printed);
  const [, code = ''] = /^https:\/\/api\.localhost:8443\/#code=([\w-]+)$/.exec(link) ?? [];
  expect(useDashboardCode(running.box, codes, code)).toMatchObject({ personId: id });
  await run('people', 'dashboard', 'jo@example.com', 'deny');
  await expect(run(...as)).rejects.toMatchObject({ exitCode: 2 });
  await expect(run('dashboard', '--as', 'nobody@example.com')).rejects.toMatchObject({ exitCode: 4 });
  await run('people', 'add', 'ann@example.com', '--dashboard');
  expect(running.people.byEmail('ann@example.com')).toMatchObject({ dashboard: true });
  running.database.close();
});

it('of ended sign-ins, the latest of each host is kept for as long as a session can last', async () => {
  const { endedSignIns, database } = openGatewayStore({ dataDir, encryptionKey: null });
  const end = (id: string, created_at: string, host: string) =>
    database.write(() =>
      endedSignIns.end(
        { host, issuer: null, subject: null, session_id: null, payer: null, id, created_at },
        90 * 86_400_000,
      ),
    );
  await end('esi_1', '2026-01-01T00:00:00Z', 'old');
  await end('esi_2', '2026-03-01T00:00:00Z', 'a');
  await end('esi_3', '2026-03-01T00:00:00Z', 'b');
  await end('esi_4', '2026-04-10T00:00:00Z', 'a');
  expect(endedSignIns.page(null, 10).map(({ id }) => id)).toEqual(['esi_3', 'esi_2']);
  expect(endedSignIns.before('a', '', '', '')).toBe(Date.parse('2026-04-10T00:00:01Z'));
  // Another one in the same second ends sign-ins that have begun since.
  await end('esi_5', '2026-04-10T00:00:00Z', 'a');
  await expect.poll(() => endedSignIns.before('a', '', '', '')).toBe(Date.parse('2026-04-10T00:00:02Z'));
  database.close();
});

it('gateway migrate asks which database is meant', async () => {
  openGatewayStore({ dataDir, encryptionKey: null }).database.close();
  await expect(run('migrate')).rejects.toThrow('set GATEWAY_DATABASE_URL, or name the shared database with --to');
});

it('gateway backup copies the database of a running gateway, and never overwrites a file', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'create');
  const file = join(dataDir, 'backup.tar.gz');
  await run('backup', file, '--json');
  expect(JSON.parse(printed.slice(printed.indexOf('{')))).toEqual({ file, with_key: false });
  expect(running.database.fact('last_backup')).toMatch(/^\d{4}-.*Z$/);
  const copy = databaseIn(file);
  expect(copy.problems()).toEqual([]);
  expect(copy.all('SELECT id FROM api_keys')).toHaveLength(1);
  copy.close();
  printed = '';
  await run('backup', file, '--list', '--json');
  expect(JSON.parse(printed)).toMatchObject({ domain: 'localhost', shared: false, with_key: false });
  await expect(run('backup', file)).rejects.toThrow(/already exists/);
  running.database.close();
});

function databaseIn(backup: string): Database {
  const file = join(temporaryFolder(), 'copy.db');
  writeFileSync(file, readBackup(backup).parts.get('gateway.db') ?? '');
  return Database.open(file, { older: 'keep' });
}

it.each([
  ['backup', 'copy.db'],
  ['certificates'],
  ['api-key', 'create'],
  ['api-key', 'list'],
  ['api-key', 'revoke', 'ak_1'],
  ['sign-ins', 'end', '--host', 'a'],
  ['log'],
])('gateway %s does not create a missing gateway', async (...args) => {
  await expect(run(...args)).rejects.toThrow(`no gateway in ${dataDir}: `);
  expect(readdirSync(dataDir)).toEqual([]);
});

it('gateway backup copies the database of an older running gateway, and other commands refuse to migrate it', async () => {
  const file = join(dataDir, 'gateway', 'gateway.db');
  openGatewayStore({ dataDir, encryptionKey: null }).database.close();
  const running = Database.open(file);
  running.all('PRAGMA user_version = 1');
  for (const args of [['certificates'], ['api-key', 'create']]) {
    await expect(run(...args)).rejects.toThrow(/older version of this program: restart the gateway/);
  }
  const copy = join(dataDir, 'backup.tar.gz');
  await run('backup', copy);
  const backup = databaseIn(copy);
  expect([running.schema, backup.schema]).toEqual([1, 1]);
  backup.close();
  running.close();
});

it('gateway certificates revoke is refused by a gateway without an ACME CA', async () => {
  await expect(run('certificates', 'revoke', 'gw.test')).rejects.toThrow('its own CA, which cannot revoke');
});

it('gateway certificates shows the status of automatic certificates', async () => {
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  await run('certificates');
  expect(printed).toBe('');
  const policy = { authority: 'https://ca.test/directory', private_key_type: 'ecdsa' } as const;
  await claimGatewayNames(store, ['*.gw.test', 'gw.test', 'api.gw.test'], policy);
  const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=gw.test', names: ['gw.test'] });
  const { leaf, key } = readUploadedPair(certificatePem, privateKeyPem);
  const facts = { ...certificateFacts(leaf, key), not_after: '2026-07-30T12:00:00Z' };
  const failure = new IssueError('DNS_ERROR', 'The DNS record _acme-challenge.gw.test is missing.');
  await store.database.write(() => {
    const common = { id: 'cert_1', created_at: store.now(), description: null, metadata: null, issued_at: store.now() };
    store.tlsCertificates.insertWithKey({ ...common, certificate_pem: certificatePem, facts }, privateKeyPem);
    const [issued, failed] = ['gw.test', '*.gw.test'].map((name) => store.ownDomains.byName(name));
    if (!issued || !failed?.job) throw new Error('a name was not claimed');
    const renews_at = '2026-06-30T00:00:00Z';
    store.ownDomains.update({ ...issued, certificate_id: 'cert_1', job: null, renews_at });
    const job = failedJob(failed.job, failure, Date.parse('2026-05-01T12:00:00Z'));
    store.ownDomains.update({ ...failed, job });
  });
  await run('certificates');
  expect(printed.trimEnd().split('\n').sort()).toEqual([
    '*.gw.test    DNS_ERROR: The DNS record _acme-challenge.gw.test is missing. Next try at 2026-05-01T12:01:00Z.',
    'api.gw.test  pending',
    'gw.test      valid until 2026-07-30T12:00:00Z; renews at 2026-06-30T00:00:00Z',
  ]);
  printed = '';
  await run('certificates', '--json');
  const none = { valid_until: null, renews_at: null, is_pending: true, error_code: null, msg: null, retries_at: null };
  expect(JSON.parse(printed)).toEqual(
    expect.arrayContaining([
      {
        ...{ ...none, domain: '*.gw.test', error_code: 'DNS_ERROR', retries_at: '2026-05-01T12:01:00Z' },
        msg: 'The DNS record _acme-challenge.gw.test is missing.',
      },
      { ...none, domain: 'api.gw.test', msg: expect.stringContaining('in progress') },
      {
        ...{ ...none, domain: 'gw.test', is_pending: false },
        ...{ valid_until: '2026-07-30T12:00:00Z', renews_at: '2026-06-30T00:00:00Z' },
      },
    ]),
  );
  store.database.close();
});
