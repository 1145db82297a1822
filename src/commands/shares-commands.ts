import type { Command } from 'commander';
import { defaultCommand, examples } from './command-line.ts';
import { type ShareOptions, shareOptions } from './share-link-calls.ts';

/** Adds the commands for share links to the tunnels of the agent on this device. */
export function addShareCommands(program: Command): void {
  const load = () => import('./shares.ts');
  const share = examples(program.command('share'), 'share demo --for 24h', 'share demo --for 7d --times 1')
    .description('Make a link that lets browsers in at a tunnel')
    .argument('<tunnel>', 'first label, hostname or URL of the tunnel');
  shareOptions(share)
    .option('--protect', 'Change the policy of the tunnel first if it takes no share links; open connections end')
    .action(async (tunnel: string, options: ShareOptions & { protect?: boolean }) =>
      (await load()).shareTunnel(tunnel, options),
    );
  const shares = program.command('shares').description('Show and revoke share links to the tunnels of this agent');
  defaultCommand(shares, 'list')
    .description('List the links to tunnels that are online, without their values (the default command)')
    .option('--json', 'Print the API’s response')
    .action(async (options: { json?: boolean }) => (await load()).listShares(options));
  shares
    .command('revoke')
    .description('Revoke a link, at once; browsers that have opened it are no longer let in')
    .argument('<id>', 'id of the link, sl_…, as listed')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string, options: { json?: boolean }) => (await load()).revokeShare(id, options));
}
