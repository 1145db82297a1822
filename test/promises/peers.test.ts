import { describe, it } from 'vitest';
import { CLI } from '../support/agent-process.ts';
import { TwoPrograms } from './two-programs.ts';

/** `npm run peers -- COMMIT` builds an earlier version and sets this; without it, both are this version. */
const EARLIER = process.env.EARLIER_CLI ?? CLI;

describe.each([
  ['an earlier device with this gateway', { device: EARLIER }],
  ['this device with an earlier gateway', { gateway: EARLIER }],
])('%s', (_title, versions) => {
  it.each(['native', 'sdk'] as const)(
    'joins, serves clients by its policy, and comes back after a crash of the gateway, with connector %s',
    async (connector) => {
      const programs = await TwoPrograms.create(versions);
      await programs.startGateway();
      const { code } = await programs.gatewayCommand<{ code: string }>('invite', '--site', '*.site.localhost');
      await programs.startDevice(connector, code);
      await programs.openTunnel();
      await programs.served();
      await programs.crashGateway();
      await programs.served();
      await programs.stopDevice();
    },
  );
});
