import { expect, it } from 'vitest';
import { gatewayCommands } from '../../support/gateway-commands.ts';
import { startMailServer } from '../../support/mail-server.ts';

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
