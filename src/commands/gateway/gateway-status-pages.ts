import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { Endpoint } from '../../management/resources/endpoint.ts';
import { statusPageIn, statusPagePolicy } from '../../management/status-page-policy.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, show, table } from '../output.ts';
import { requireId } from './gateway-messages.ts';
import { withGateway } from './running-gateway.ts';

interface JsonOption {
  json?: boolean;
}

export interface StatusPageChoice extends JsonOption {
  title: string;
  text?: string;
  /** `<url>=<title>` */
  endpoint: string[];
}

/** Lists the cloud endpoints that are status pages. */
export async function listStatusPages(settings: GatewayServerSettings, { json }: JsonOption): Promise<void> {
  const pages = await withGateway(settings, async (client) => {
    const found: Endpoint[] = [];
    for await (const each of client.endpoints.all())
      if (statusPageIn(each.traffic_policy ?? '') !== null) found.push(each);
    return found;
  });
  if (json) return void print(jsonText(pages));
  if (pages.length === 0) return void note(`No status pages. Add one with: ${ownCommand('gateway status-pages add')}`);
  const rows = pages.map(({ id, url, traffic_policy }) => {
    const page = statusPageIn(traffic_policy ?? '');
    return [id, url ?? '', page?.title ?? '', String(page?.endpoints.length ?? 0)];
  });
  print(table(['ID', 'URL', 'TITLE', 'ENDPOINTS'], rows));
}

/** Creates a status page at a URL. @throws {OperatorError} exit code 2 when something is missing, 1 when the gateway refuses it */
export async function addStatusPage(
  settings: GatewayServerSettings,
  url: string,
  { title, text, endpoint, json }: StatusPageChoice,
): Promise<void> {
  const endpoints = endpoint.map((each) => {
    const at = each.indexOf('=');
    if (at < 1) throw new OperatorError(`--endpoint ${each}: write it as <url>=<title>`, 2);
    return { url: withScheme(each.slice(0, at)), title: each.slice(at + 1) };
  });
  const traffic_policy = statusPagePolicy({ title, endpoints, ...(text !== undefined && { text }) });
  const made = await withGateway(settings, (client) =>
    client.endpoints.create({ type: 'cloud', url: withScheme(url), bindings: ['public'], traffic_policy }),
  );
  show(made, { json }, ({ id, url: at }) => `${id} added: ${at}`);
}

const withScheme = (url: string): string => (url.includes('://') ? url : `https://${url}`);

/** @throws {OperatorError} exit code 4 for an unknown id, or that of another endpoint */
export async function removeStatusPage(
  settings: GatewayServerSettings,
  id: string,
  options: JsonOption,
): Promise<void> {
  requireId(id, 'ep_', 'status page', 'gateway status-pages');
  await withGateway(settings, async (client) => {
    const { traffic_policy } = await client.endpoints.get(id);
    if (statusPageIn(traffic_policy ?? '') === null)
      throw new OperatorError(`${id} is no status page: delete it in the dashboard`, 4);
    await client.endpoints.delete(id);
  });
  show({ removed: id }, options, () => `${id} removed`);
}
