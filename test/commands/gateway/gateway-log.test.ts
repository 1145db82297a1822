import { expect, it } from 'vitest';
import { addressColumns } from '../../../src/gateway/store/cloud-endpoints.ts';
import { gatewayCommands } from '../../support/gateway-commands.ts';

const commands = gatewayCommands();

const policyOf = (password: string) =>
  `on_http_request:\n- actions:\n  - type: basic-auth\n    config:\n      credentials: ["anna:${password}"]\n`;

it('gateway log shows and undoes a change of a traffic policy, without its secrets', async () => {
  const { cloudEndpoints, database, now } = commands.gateway.store;
  const address = { protocol: 'https', host: 'cam.gateway.localhost', port: 0, internal: false } as const;
  const row = {
    ...{ id: 'ep_1', created_at: now(), updated_at: now(), description: 'north', metadata: null },
    ...{ ...addressColumns(address), pooling_enabled: false, traffic_policy: policyOf('open-sesame') },
  };
  const by = { by: 'ak_1', from: '192.0.2.1' };
  await database.write(() => cloudEndpoints.insert(row), by);
  const changed = { ...row, description: 'south\u001b[2J', traffic_policy: policyOf('swordfish-2') };
  await database.write(() => cloudEndpoints.update(changed), by);

  const [, id = ''] =
    /: description, traffic_policy {2}(evt_\w+)$/m.exec(await commands.run('log', '--object', 'ep_1')) ?? [];
  const shown = await commands.run('log', 'show', id);
  expect(shown).toContain('  ak_1 (192.0.2.1)  endpoint_updated ep_1 cam.gateway.localhost: ');
  expect(shown).toContain('\n-description: "north"\n+description: "south\\u001b[2J"\n@@ ');
  expect(shown).toContain('\n-      - anna:[masked]\n+      - anna:[masked, changed]\n');
  expect(shown).not.toMatch(/open-sesame|swordfish|sha256/);
  expect(JSON.parse(await commands.run('log', 'show', id, '--json'))).toMatchObject({
    id,
    policy_difference: expect.stringContaining('anna:[masked, changed]'),
  });

  expect(await commands.run('log', 'undo', id)).toMatch(
    new RegExp(`^${id} undone by evt_\\w+\\n[^]*anna:\\[masked, changed\\]`),
  );
  expect(cloudEndpoints.get('ep_1')).toMatchObject({
    traffic_policy: policyOf('open-sesame'),
    description: changed.description,
  });
  expect(await commands.run('log', '--by', 'gateway')).toMatch(
    /gateway \(127\.0\.0\.1\) {2}endpoint_updated ep_1 .*: traffic_policy {2}evt_/,
  );
  await expect(commands.run('log', 'undo', id)).rejects.toThrow(
    `${id} cannot be undone: the policy of ep_1 has been changed since by evt_`,
  );
  for (const command of ['show', 'undo'])
    await expect(commands.run('log', command, 'nothing')).rejects.toMatchObject({ exitCode: 4 });
});
