import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { fetchTrusting } from '../../../src/management/fetch-trusting.ts';
import { parseJoinCode } from '../../../src/management/join-code.ts';
import { installKey } from '../../support/enrolment.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { agentSession } from '../../support/gateway.ts';
import { gatewayCommands } from '../../support/gateway-commands.ts';
import { until } from '../../support/until.ts';

const commands = gatewayCommands();

/** What the audit log has of an object. */
function changesOf(id: string): string[] {
  const rows = commands.gateway.store.auditLog.where('object_id = ?', [id]);
  return rows.map(({ by, type }) => `${by} ${type}`).sort();
}

async function join(code: string, name: string, install_key = installKey()) {
  const { secret } = parseJoinCode(code) ?? {};
  const answer = await fetchTrusting({ ca: commands.gateway.sessionCa })(`${commands.gateway.apiUrl}/enrolments`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ install_key, secret, name }),
    redirect: 'manual',
    signal: AbortSignal.timeout(5000),
  });
  return JSON.parse(await answer.text());
}

it('gateway invite prints a code with which devices join, as text with a picture, and as JSON', async () => {
  const text = await commands.run('invite', '--site', '*.site-a.localhost', '--uses', '2');
  const code = /^join-\S+$/m.exec(text)?.[0] ?? '';
  expect(text).toContain(`  echo ${code} | sudo device-agent join -\n`);
  expect(text).toMatch(/^[█▀▄ ]{30,}$/m);
  expect(await join(code, 'cam')).toMatchObject({ name: 'cam', site: 'site-a.localhost' });
  const json = JSON.parse(await commands.run('invite', '--site', 'site-a.example.com', '--expires', '12h', '--json'));
  expect(json).toMatchObject({
    site: '*.site-a.example.com',
    command: `echo ${json.code} | sudo device-agent join -`,
    max_uses: 1,
    dns_records: [expect.stringContaining('*.site-a.example.com. '), expect.stringContaining('_acme-challenge.')],
  });
  expect(Date.parse(json.expires_at) - Date.now()).toBeLessThan(12 * 3_600_000 + 1);
});

it('gateway invites and devices are limited and sorted', async () => {
  for (const site of ['b', 'a', 'c'])
    await commands.run('invite', '--site', `${site}.localhost`, '--label', `floor=${site}`);
  const sites = async (...options: string[]) =>
    JSON.parse(await commands.run('invites', '--json', ...options)).map(({ site }: { site: string }) => site[0]);
  expect(await sites('--sort', 'site')).toEqual(['a', 'b', 'c']);
  expect(await sites('--sort', '-site')).toEqual(['c', 'b', 'a']);
  expect(await sites('--search', 'A.LOCAL')).toEqual(['a']);
  expect(await sites('--label', 'floor=b', '--state', 'valid')).toEqual(['b']);
  await expect(commands.run('invites', '--sort', 'age')).rejects.toMatchObject({ exitCode: 2 });
  const code = /^join-\S+$/m.exec(await commands.run('invite', '--site', 'a.localhost', '--uses', '2'))?.[0] ?? '';
  for (const name of ['lift', 'cam']) await join(code, name);
  const names = async (...options: string[]) =>
    JSON.parse(await commands.run('devices', '--json', ...options)).map(({ name }: { name: string }) => name);
  expect(await names('--sort', 'name')).toEqual(['cam', 'lift']);
  expect(await names('--sort', '-name', '--search', 'LIFT')).toEqual(['lift']);
  await expect(commands.run('devices', '--sort', 'age')).rejects.toMatchObject({ exitCode: 1 });
  expect(await commands.run('log', '--search', 'Lift')).toMatch(/device_created \S+ lift$/m);
});

it('gateway devices does something with many devices at once, after a count and a confirmation', async () => {
  const code = /^join-\S+$/m.exec(await commands.run('invite', '--site', 'a.localhost', '--uses', '9'))?.[0] ?? '';
  for (const name of ['lift', 'cam', 'door']) await join(code, name);
  const labels = async () =>
    JSON.parse(await commands.run('devices', '--json', '--sort', 'name')).map(
      (each: { labels: object }) => each.labels,
    );
  expect(await commands.run('devices', 'label', '--site', 'a.localhost', '--set', 'floor=2', '--dry-run')).toBe(
    '3 devices, 0 online\n',
  );
  const unconfirmed = commands.run('devices', 'label', '--all', '--set', 'floor=2');
  await expect(unconfirmed).rejects.toMatchObject({ exitCode: 2, message: expect.stringContaining('add --yes') });
  await expect(commands.run('devices', 'label', '--set', 'floor=2')).rejects.toMatchObject({ exitCode: 2 });
  await expect(commands.run('devices', 'revoke', 'cam', '--all', '--yes')).rejects.toMatchObject({ exitCode: 2 });
  expect(await labels()).toEqual([{}, {}, {}]);
  expect(await commands.run('devices', 'label', '--search', 'lift', '--set', 'floor=2', '--yes')).toBe(
    'label: done for 1 of 1\n',
  );
  expect(await commands.run('devices', 'label', 'cam', 'door', '--set', 'a=b', '--remove', 'floor')).toBe(
    'label: done for 2 of 2\n',
  );
  expect(await labels()).toEqual([{ a: 'b' }, { a: 'b' }, { floor: '2' }]);
  await expect(commands.run('devices', 'restart', '--label', 'a=b', '--yes')).rejects.toMatchObject({
    ...{ exitCode: 1, message: 'failed for 2 of 2 devices' },
  });
  expect(commands.printed).toMatch(/^cam +dev_\S+ +offline$/m);
  const { id } = JSON.parse(await commands.run('devices', 'revoke', '--all', '--yes', '--json'));
  expect(await commands.run('devices', '--state', 'revoked')).toMatch(/cam .*\n.*/);
  expect(await commands.run('log', '--type', 'bulk_action')).toContain(`bulk_action_created ${id}`);
  await expect(commands.run('devices', 'cancel', 'blk_1')).rejects.toMatchObject({ exitCode: 1 });
}, 60_000);

it('gateway invite --help shows its defaults as one writes them', async () => {
  await expect(commands.run('invite', '--help')).rejects.toMatchObject({ code: 'commander.helpDisplayed' });
  expect(commands.printed).toContain('(default: 7d)');
  expect(commands.printed).not.toMatch(/604800000|\{\}/);
});

it('gateway invites lists the codes without their values, and revoke ends one', async () => {
  const { id, code } = JSON.parse(await commands.run('invite', '--site', '*.site-a.localhost', '--json'));
  const listed = await commands.run('invites');
  expect(listed).toMatch(new RegExp(`${id} +\\*\\.site-a\\.localhost +0 of 1 +valid`));
  expect(await commands.run('invites', 'revoke', id)).toBe(`${id} revoked\n`);
  expect(await join(code, 'cam')).toMatchObject({ error_code: 'ERR_GATEWAY_CODE_REVOKED' });
  expect(await commands.run('invites')).toMatch(/ revoked +/);
  const json = await commands.run('invites', '--json');
  expect(JSON.parse(json)).toMatchObject([{ id, uses: 0, revoked_at: expect.any(String) }]);
  expect(json).not.toContain('secret');
  await expect(commands.run('invites', 'revoke', 'ek_1')).rejects.toMatchObject({ exitCode: 4 });
  expect(changesOf(id)).toEqual(['gateway enrolment_key_created.v0', 'gateway enrolment_key_updated.v0']);
});

it('gateway devices approves, renames, rotates, revokes and deletes a device of the running gateway', async () => {
  const { code } = JSON.parse(
    await commands.run('invite', '--site', '*.site-a.localhost', '--approve', '-l', 'floor=2', '--json'),
  );
  const key = installKey();
  await join(code, 'cam', key);
  expect(await commands.run('devices')).toMatch(/^cam +\*\.site-a\.localhost +pending .* floor=2$/m);
  await commands.run('devices', 'approve', 'cam');
  expect(await join(code, 'cam', key)).toMatchObject({ status: 'enrolled' });
  await commands.run('devices', 'rename', 'cam', 'door');
  await commands.run('devices', 'rotate', 'door');
  await commands.run('devices', 'revoke', 'door');
  const [device] = JSON.parse(await commands.run('devices', '--json'));
  expect(device).toMatchObject({ name: 'door', status: 'revoked' });
  expect(device.history.slice(-1)).toEqual([{ at: expect.any(String), what: 'revoked', by: 'gateway' }]);
  await expect(commands.run('devices', 'approve', 'nobody')).rejects.toMatchObject({ exitCode: 4 });
  await commands.run('devices', 'delete', 'door');
  expect(await commands.run('devices')).toBe('');
  // The keys with which the commands call the API are gone.
  expect(commands.gateway.store.apiKeys.page(null, 10)).toEqual([]);
});

it('gateway devices says when a device was last seen, after a lost connection and after it was revoked', async () => {
  const { code } = JSON.parse(await commands.run('invite', '--site', '*.site-a.localhost', '--json'));
  const { authtoken } = await join(code, 'cam');
  const proxy = await FlakyProxy.start(commands.gateway.sessionAddress);
  onTestFinished(() => proxy.refuse());
  const shown = async () => JSON.parse(await commands.run('devices', '--json'))[0];
  const connect = async () => {
    await agentSession({ ...commands.gateway, authtoken }, proxy.address).connect();
    expect((await shown()).online_since).toEqual(expect.any(String));
  };
  // Sessions begin and end in different seconds.
  const nextSecond = () => delay(1_000 - (Date.now() % 1_000) + 1);
  const endsBy = async (end: () => unknown) => {
    const endedAt = Math.floor(Date.now() / 1_000) * 1_000;
    await end();
    await until(async () => (await shown()).online_since === null, 'offline');
    const { last_seen_at } = await shown();
    expect(Date.parse(last_seen_at) - endedAt).toBeGreaterThanOrEqual(0);
  };
  await connect();
  await nextSecond();
  await endsBy(() => proxy.cut());
  await connect();
  await nextSecond();
  await endsBy(() => commands.run('devices', 'revoke', 'cam'));
  expect(await commands.run('devices')).toMatch(new RegExp(`^cam .* revoked +${(await shown()).last_seen_at} `, 'm'));
});

it('gateway devices shows names directly below the site, and releases one', async () => {
  const { code } = JSON.parse(
    await commands.run('invite', '--site', '*.site-a.localhost', '--own-names-only', '--json'),
  );
  await join(code, 'cam');
  const { store } = commands.gateway;
  const [device] = store.devices.page(null, 1);
  const put = (hostname: string) =>
    store.siteNames.put({ hostname, device_id: String(device?.id), released_from: null });
  await store.database.write(() => ['front.site-a.localhost', 'yard.site-a.localhost'].forEach(put));
  expect(await commands.run('devices')).toMatch(/ NAMES .*\ncam .* front,yard$/m);
  expect(await commands.run('devices', 'release', 'cam', 'front')).toMatch(/^front\.site-a\.localhost released; /);
  await expect(commands.run('devices', 'release', 'cam', 'front')).rejects.toMatchObject({ exitCode: 4 });
  expect(JSON.parse(await commands.run('devices', '--json'))).toMatchObject([
    { plain_names: ['yard'], own_names_only: true },
  ]);
});

it('gateway names shows names that other authtokens have used, and frees one for devices', async () => {
  const { store } = commands.gateway;
  const hostname = 'shop.site-a.localhost';
  await store.database.write(() => store.siteNames.put({ hostname, device_id: null, released_from: null }));
  expect(await commands.run('names')).toMatch(/^NAME +SINCE\nshop\.site-a\.localhost +\S+Z\n$/);
  expect(await commands.run('names', 'free', hostname)).toContain(`${hostname} is free`);
  expect(JSON.parse(await commands.run('names', '--json'))).toEqual([]);
  await expect(commands.run('names', 'free', hostname)).rejects.toMatchObject({ exitCode: 4 });
  expect(changesOf(hostname)).toEqual(['gateway site_name_deleted.v0']);
});

it.each([[['invite', '--site', '*']], [['invite', '--site', '*.site-a.localhost', '--tcp', '9-1']]])(
  '%j is refused as wrong usage',
  async (args) => {
    await expect(commands.run(...args)).rejects.toMatchObject({ exitCode: 2 });
  },
);
