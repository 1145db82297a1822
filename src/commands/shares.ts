import { callAgent } from '../agent/api-client.ts';
import { OperatorError } from '../lib/errors.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { jsonText, note, print, show } from './output.ts';
import { agentSettings } from './settings-place.ts';
import { type ShareOptions, shareRequest, sharesTable, showShare } from './share-link-calls.ts';

/**
 * Makes a link to a tunnel, and prints it.
 *
 * @throws {OperatorError} exit code 4 when there is no such tunnel, 3 when the agent does not run, 1 when it refuses
 */
export async function shareTunnel(name: string, options: ShareOptions & { protect?: boolean }): Promise<void> {
  const body = { ...shareRequest(options), protect: options.protect === true };
  showShare(
    await callAgent(agentSettings('api'), 'POST /tunnels/{url_part}/share_links', { url_part: name, body }),
    options,
  );
}

export async function listShares({ json }: { json?: boolean }): Promise<void> {
  const links = await callAgent(agentSettings('api'), 'GET /share_links');
  if (json) return void print(jsonText(links));
  if (links.length === 0) return void note(`No share links. Make one with: ${ownCommand('share <tunnel> --for 24h')}`);
  print(sharesTable(links));
}

/** @throws {OperatorError} exit code 4 when there is none with the id */
export async function revokeShare(id: string, options: { json?: boolean }): Promise<void> {
  if (!/^sl_\w+$/.test(id)) throw new OperatorError(`no share link has this id: ${ownCommand('shares')} lists them`, 4);
  await callAgent(agentSettings('api'), 'DELETE /share_links/{id}', { id });
  show({ revoked: id }, options, ({ revoked }) => `${revoked} revoked; it lets nobody in any more`);
}
