import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { ShareLink } from '../../management/resources/share-link.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, show } from '../output.ts';
import { type ShareOptions, shareRequest, sharesTable, showShare } from '../share-link-calls.ts';
import { withGateway } from './running-gateway.ts';

/**
 * Makes a link to an endpoint that is online, and prints it.
 *
 * @throws {OperatorError} exit code 3 when the gateway does not run, 1 when it refuses
 */
export async function shareEndpoint(
  settings: GatewayServerSettings,
  url: string,
  options: ShareOptions,
): Promise<void> {
  const whole = url.includes('://') ? url : `https://${url}`;
  const body = { url: whole, ...shareRequest(options) };
  showShare(await withGateway(settings, (client) => client.shareLinks.create(body)), options);
}

export async function listGatewayShares(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  const all = await withGateway(settings, async (client) => {
    const links: ShareLink[] = [];
    for await (const link of client.shareLinks.all()) links.push(link);
    return links;
  });
  if (json) return void print(jsonText(all));
  if (all.length === 0)
    return void note(`No share links. Make one with: ${ownCommand('gateway share <url> --for 24h')}`);
  print(sharesTable(all));
}

/** @throws {OperatorError} exit code 4 when there is none with the id */
export async function revokeGatewayShare(
  settings: GatewayServerSettings,
  id: string,
  options: { json?: boolean },
): Promise<void> {
  if (!/^sl_\w+$/.test(id))
    throw new OperatorError(`no share link has this id: ${ownCommand('gateway shares')} lists them`, 4);
  await withGateway(settings, (client) => client.shareLinks.delete(id));
  show({ revoked: id }, options, ({ revoked }) => `${revoked} revoked; it lets nobody in any more`);
}
