import { curlCommand, STATUS_FILTER } from '../../agent/api/inspection/shown-requests.ts';
import { callAgent, downloadFromAgent, type ListedTunnel, type RequestDetail } from '../../agent/api-client.ts';
import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { agentSettings } from '../settings-place.ts';
import { stopSignal } from '../until-stopped.ts';
import { LiveRequests, readDetail, type WatchedTunnel, type WatchOptions } from './live-requests.ts';
import { requestText } from './request-detail.ts';

const NO_TUNNEL = 4;
const MAX_NAMED = 10;
const ACTIONS = ['show', 'curl', 'replay', 'har'] as const;

/**
 * Shows the requests of a tunnel as they come, until it is stopped; or does one thing with captured ones.
 *
 * @param name the tunnel; undefined: the only one for http
 * @throws {OperatorError} exit code 2 for wrong options, 3 when no agent answers, 4 when no tunnel matches
 */
export async function watch(name: string | undefined, options: WatchOptions): Promise<void> {
  const { status, minDuration, json } = options;
  if (status !== undefined && !STATUS_FILTER.test(status)) {
    throw new OperatorError(
      `--status: "${status}" is neither a status such as 404, a class such as 5xx, nor "none"`,
      2,
    );
  }
  if (minDuration !== undefined && !/^\d+$/.test(minDuration)) {
    throw new OperatorError(`--min-duration: "${minDuration}" is not a number of milliseconds`, 2);
  }
  const [action, ...others] = ACTIONS.filter((each) => options[each] !== undefined);
  if (others.length > 0) throw new OperatorError(`--${action} and --${others[0]}: choose one`, 2);
  const settings = agentSettings('api');
  const { url } = await findTunnel(settings, name);
  const tunnel: WatchedTunnel = { settings, url, query: options.reveal ? { reveal: 'true' } : {} };
  switch (action) {
    case 'har':
      return exportHar(tunnel, options);
    case 'curl': {
      const detail = await detailOf(tunnel, options.curl);
      if (detail.request.body?.truncated) note('body left out: it was not captured whole');
      const { addresses } = await callAgent(settings, 'GET /status');
      return print(curlCommand(detail, url, addresses.gateway_ca ?? null));
    }
    case 'replay': {
      const one = { ...requestOf(tunnel, options.replay), query: tunnel.query, body: {} };
      return printDetail(tunnel, await callAgent(settings, 'POST /tunnels/{url_part}/requests/{id}/replay', one), json);
    }
    case 'show':
      return printDetail(tunnel, await detailOf(tunnel, options.show), json);
    default: {
      const onWatching = () => note(printable(`watching ${url}; Ctrl-C ends`));
      return new LiveRequests(tunnel, options, stopSignal(), onWatching).run();
    }
  }
}

async function findTunnel(settings: Settings, name: string | undefined): Promise<Pick<ListedTunnel, 'url'>> {
  if (name !== undefined) return callAgent(settings, 'GET /tunnels/{url_part}', { url_part: name });
  const tunnels = await callAgent(settings, 'GET /tunnels', { query: { protocol: 'http' } });
  const [only, ...others] = tunnels;
  if (!only) throw new OperatorError(`no http tunnel: start one with: ${ownCommand('http 8001')}`, NO_TUNNEL);
  if (others.length === 0) return only;
  const names = tunnels.slice(0, MAX_NAMED).map(({ url_part }) => url_part);
  const more = tunnels.length - names.length;
  throw new OperatorError(`several tunnels: name one of ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`, 2);
}

function detailOf(tunnel: WatchedTunnel, id: string | undefined): Promise<RequestDetail> {
  const one = { ...requestOf(tunnel, id), query: tunnel.query };
  return callAgent(tunnel.settings, 'GET /tunnels/{url_part}/requests/{id}', one);
}

function requestOf({ url }: WatchedTunnel, id = '') {
  if (!/^\d{1,15}$/.test(id)) throw new OperatorError(`not the id of a request: "${id}"; watch shows ids`, 2);
  return { url_part: url, id };
}

async function printDetail(tunnel: WatchedTunnel, detail: RequestDetail, json = false): Promise<void> {
  const { messages } = await readDetail(tunnel, detail.id, detail);
  print(json ? jsonText({ ...detail, received: messages }) : requestText(detail, messages));
}

async function exportHar({ settings, url, query }: WatchedTunnel, options: WatchOptions): Promise<void> {
  const { har = '', method, path: part, status, minDuration } = options;
  const filters = { ...query, method, path: part, status, min_duration_ms: minDuration };
  await downloadFromAgent(settings, 'GET /tunnels/{url_part}/requests.har', { url_part: url, query: filters }, har);
  note(`wrote ${har}; browsers open it in the network tab of their developer tools`);
}
