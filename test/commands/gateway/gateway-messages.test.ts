import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { gatewayCommands } from '../../support/gateway-commands.ts';
import { exchange } from '../../support/https-exchange.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const commands = gatewayCommands({ policyNetworks: [] });

/** Adds a destination as the dashboard does. */
async function destination(port: number): Promise<string> {
  const { database, eventDestinations, eventDeliveries, ids, now } = commands.gateway.store;
  const id = ids.next('ed');
  await database.write(() => {
    const target = {
      ...{ kind: 'email' as const, to: ['ops@example.com'], from: 'gateway@example.com', host: '127.0.0.1', port },
      security: 'none' as const,
    };
    const common = { id, created_at: now(), description: null, metadata: null };
    const row = { ...common, ...eventDestinations.sealed(target, id) };
    eventDestinations.insert(row);
    eventDeliveries.begin(row);
  });
  return id;
}

it('gateway destinations lists where messages go, and test says in words what came of it', async () => {
  const mail = await startMailServer({ disabledCommands: ['STARTTLS'] });
  const id = await destination(mail.port);
  expect(await commands.run('destinations')).toMatch(new RegExp(`^${id} +email +ops@example\\.com +ok`, 'm'));
  // A server in the gateway's own network is out of reach unless a setting says otherwise.
  await expect(commands.run('destinations', 'test', id)).rejects.toMatchObject({
    message: 'test message not accepted: 127.0.0.1 is not on the public internet',
    exitCode: 1,
  });
  await expect(commands.run('destinations', 'test', 'ops')).rejects.toMatchObject({ exitCode: 4 });
  await mail.close();
});

it('gateway rules adds, changes, lists and removes rules', async () => {
  const id = await destination(25);
  expect(await commands.run('rules', 'usual', id)).toMatch(
    /^mr_\w+ added: What stops traffic or changes\n(mr_.*\n){2}$/,
  );
  const options = ['--condition', 'device_offline', '--site', 'quarry.example.com', '--label', 'floor=2'];
  const made = await commands.run(
    'rules',
    'add',
    '--to',
    id,
    ...options,
    '--after',
    '10m',
    '--remind',
    '4h',
    '-d',
    'night',
  );
  const [, rule = ''] = /^(mr_\w+) added\n$/.exec(made) ?? [];
  await commands.run('rules', 'set', rule, '--quiet', '22:00-07:00 Europe/Berlin', '--remind', '0');
  const all = JSON.parse(await commands.run('rules', '--json')) as { id: string }[];
  expect(all.find((each) => each.id === rule)).toMatchObject({
    ...{ conditions: ['device_offline'], sites: ['quarry.example.com'], labels: { floor: '2' }, after_minutes: 10 },
    ...{ destination_ids: [id], quiet_hours: '22:00-07:00 Europe/Berlin', remind_minutes: 0, description: 'night' },
  });
  expect(await commands.run('rules')).toMatch(/device_offline +quarry\.example\.com, floor=2 +10 min/);
  await expect(commands.run('rules', 'set', rule, '--quiet', '22-7')).rejects.toThrow(/22:00-07:00 Europe\/Berlin/);
  expect(await commands.run('rules', 'remove', rule)).toBe(`${rule} removed\n`);
});

it('gateway conditions says who was told, and acknowledges and silences', async () => {
  const { database, conditionHistory, ids, now } = commands.gateway.store;
  await commands.run('rules', 'usual', await destination(25));
  const id = await database.write(() => {
    const row = conditionHistory.newRow({
      ...{ id: ids.next('cnd'), created_at: now(), condition: 'device_offline', subject: 'dev_1', name: 'cam-1' },
      ...{ site: 'quarry.example.com', labels: {}, severity: 'warning', message: 'offline', remedy: 'look' },
      ...{ began_at: now(), comes_and_goes: false, settled: true, ended_at: now(), told: [], withheld: [] },
    });
    conditionHistory.insert(row);
    return row.id;
  }, null);
  expect(await commands.run('conditions')).toMatch(
    new RegExp(`^${id} +device_offline +cam-1 at quarry\\.example\\.com`, 'm'),
  );
  const shown = await commands.run('conditions', 'show', id);
  expect(shown).toMatch(/^A device is offline: cam-1 at quarry\.example\.com\n/);
  expect(shown).toMatch(/Rule Devices that are offline: ops@example\.com was not told: the rule waits for 10 min/);
  expect(shown).toMatch(/Rule What needs attention: nobody is told, because it is not about device_offline\./);
  expect(await commands.run('conditions', 'acknowledge', id)).toMatch(/acknowledged at \S+ by gateway/);
  expect(await commands.run('conditions', 'silence', id, '--for', '8h')).toMatch(/silenced until \S+ by gateway/);
  expect(await commands.run('log', '--object', id)).toMatch(/condition_updated/);
});

/** With its secrets. */
function targetOf(id: string): unknown {
  const { eventDestinations: all } = commands.gateway.store;
  const row = all.get(id);
  return row && all.target(row);
}

it('gateway destinations adds and removes destinations, with secrets from files only', async () => {
  const secret = join(temporaryFolder(), 'secret');
  writeFileSync(secret, 'hunter2hunter2\n');
  const smtp = ['--smtp', 'smtps://gateway@mail.example.com', '--secret-file', secret];
  const added = await commands.run(
    'destinations',
    'add',
    'email',
    'ops@example.com',
    ...smtp,
    '--usual-rules',
    '-d',
    'night',
  );
  const [, id = ''] = /^(ed_\w+) added\n(?:mr_\w+ added: .*\n){3}$/.exec(added) ?? [];
  expect(await commands.run('destinations')).toMatch(new RegExp(`^${id} +email +ops@example\\.com +ok +night`, 'm'));
  expect(targetOf(id)).toMatchObject({
    host: 'mail.example.com',
    port: 465,
    password: 'hunter2hunter2',
  });
  writeFileSync(secret, 'https://hooks.slack.com/services/T1/B2/x\n');
  const slack = JSON.parse(await commands.run('destinations', 'add', 'slack', '--secret-file', secret, '--json'));
  expect(targetOf(slack.id)).toMatchObject({
    url: 'https://hooks.slack.com/services/T1/B2/x',
  });
  const hook = await commands.run('destinations', 'add', 'webhook', 'https://hooks.example.com/x');
  expect(hook).toMatch(/^ed_\w+ added\nsigning secret, shown once: whsec_/);
  await expect(commands.run('destinations', 'remove', id)).rejects.toThrow(/in use: the message rule mr_\w+ names it/);
  expect(await commands.run('destinations', 'remove', slack.id)).toBe(`${slack.id} removed\n`);
  for (const [args, message] of [
    [['slack', 'https://hooks.slack.com/services/x'], /is a secret; write it into a file: --secret-file/],
    [['discord'], /needs --secret-file, a file with the URL of a webhook/],
    [['telegram', '--secret-file', secret], /name the number of a chat/],
    [['email', 'ops@example.com'], /needs --smtp/],
    [['pigeon', 'x'], /unknown kind of destination pigeon: use one of email, ntfy/],
    [['ntfy', 'https://ntfy.sh/x', '--secret-file', `${secret}s`], /--secret-file: cannot be read: ENOENT/],
  ] as const)
    await expect(commands.run('destinations', 'add', ...args)).rejects.toMatchObject({
      message: expect.stringMatching(message),
      exitCode: 2,
    });
});

it('gateway status-pages adds, lists and removes pages', async () => {
  const endpoint = ['--endpoint', 'cam.localhost=Camera at the gate', '--endpoint', 'tcp://tcp.localhost:2000=Shell'];
  const added = await commands.run('status-pages', 'add', 'status.localhost', '--title', 'Quarry', ...endpoint);
  const [, id = ''] = /^(ep_\w+) added: https:\/\/status\.localhost:\d+\n$/.exec(added) ?? [];
  expect(await commands.run('status-pages')).toMatch(
    new RegExp(`^${id} +https://status\\.localhost:\\d+ +Quarry +2$`, 'm'),
  );
  const page = await exchange(`https://status.localhost:${commands.gateway.httpsPort}/`);
  expect(page.body.toString()).toContain('<h2>Camera at the gate</h2>');
  await expect(
    commands.run('status-pages', 'add', 'a.localhost', '--title', 'A', '--endpoint', 'cam'),
  ).rejects.toMatchObject({
    exitCode: 2,
  });
  expect(await commands.run('status-pages', 'remove', id)).toBe(`${id} removed\n`);
  await expect(commands.run('status-pages', 'remove', id)).rejects.toThrow(/no endpoint|not found|unknown/i);
});
