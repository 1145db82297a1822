import { type Command, InvalidArgumentError } from 'commander';
import type { TunnelShareLink } from '../agent/api-client.ts';
import { countOption, duration } from './command-line.ts';
import { show, table } from './output.ts';

export interface ShareOptions {
  /** Milliseconds. */
  for: number;
  times?: number;
  description?: string;
  json?: boolean;
}

const MAX_MS = 90 * 86_400_000;

/** The APIs refuse more as well, but name a member of theirs. */
function lifetime(text: string): number {
  const ms = duration(text);
  if (ms > MAX_MS) throw new InvalidArgumentError('Must be at most 90d.');
  return ms;
}

/** Adds the options of a command that makes a share link. */
export function shareOptions(command: Command): Command {
  return command
    .requiredOption('-f, --for <duration>', 'How long it works, such as 30m, 24h or 7d; at most 90d', lifetime)
    .option('-t, --times <count>', 'How many browsers can open it (default: any number)', countOption)
    .option('--description <text>', 'Whom the link is for')
    .option('--json', 'Print JSON');
}

/** What the APIs of gateway and agent take for a link. */
export function shareRequest({ for: ms, times, description }: ShareOptions) {
  return {
    expires_in: Math.ceil(ms / 1000),
    ...(times !== undefined && { max_uses: times }),
    ...(description !== undefined && { description }),
  };
}

export function showShare(made: TunnelShareLink, { json }: { json?: boolean }): void {
  show(made, { json }, ({ link, id, expires_at, max_uses }) => {
    const browsers = max_uses === null ? '' : max_uses === 1 ? ', for 1 browser' : `, for ${max_uses} browsers`;
    return `${link}\n${id}: works until ${expires_at}${browsers}; shown only once`;
  });
}

export function sharesTable(links: readonly TunnelShareLink[]): string {
  const rows = links.map(({ id, url, uses, max_uses, expires_at, created_by, description }) => [
    ...[id, url, `${uses} of ${max_uses ?? 'any'}`, expires_at, created_by, description ?? ''],
  ]);
  return table(['ID', 'URL', 'OPENED', 'EXPIRES', 'MADE BY', 'DESCRIPTION'], rows);
}
