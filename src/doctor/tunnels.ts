import { basename } from 'node:path';
import { beginsWithHttp1, UpstreamFault, type UpstreamTls } from '../agent/connectors/connector.ts';
import { backupOf } from '../agent/tunnels/durable-file.ts';
import type { Tunnel } from '../agent/tunnels/tunnel.ts';
import { type FileContent, type TunnelFile, tunnelsFile, tunnelsIn } from '../agent/tunnels/tunnels-file.ts';
import { connectUpstream } from '../agent/upstreams/connect-upstream.ts';
import { parseUpstream, type Upstream } from '../agent/upstreams/upstream.ts';
import { checkHttp } from '../agent/upstreams/upstream-check.ts';
import { UpstreamGuard } from '../agent/upstreams/upstream-guard.ts';
import { tlsOf } from '../agent/upstreams/upstream-tls.ts';
import { ApiError, messageOf } from '../lib/errors.ts';
import { Limiter } from '../lib/limiter.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { CHANGE_TLS, CHANGE_UPSTREAM, START_UPSTREAM, upstreamAdvice } from './advice.ts';
import { type Check, check, failed, ok, type Result, skipped, summarize } from './finding.ts';

const ANSWER_MS = 3_000;
/** Upstreams that are checked concurrently. */
const MAX_TRYING = 16;

/** Checks that the tunnels' upstreams are allowed, accept connections and speak the tunnel's protocol. */
export function upstreamsCheck(tunnels: Promise<readonly Tunnel[]>, settings: Settings, patience: number): Check {
  const limiter = new Limiter(MAX_TRYING);
  const { allowUpstreams, verifyUpstreamTls: verifyTls, systemCas: upstreamCas, dataDir } = settings;
  const options = {
    guard: new UpstreamGuard(allowUpstreams),
    verifyTls,
    upstreamCas,
    connectMs: ANSWER_MS * patience,
    privateFile: tunnelsFile(dataDir),
  };
  return check('upstreams', 'Upstreams', async () => {
    // An upstream of an http tunnel and of others is checked as that of the http tunnel.
    const upstreams = new Map<string, Tried>();
    for (const tunnel of await tunnels) {
      const found = triedFor(tunnel);
      const key = `${found.text} ${JSON.stringify(found.tls)}`;
      upstreams.set(key, { ...found, isHttp: found.isHttp || upstreams.get(key)?.isHttp === true });
    }
    if (upstreams.size === 0) return skipped('no tunnels');
    const tried = [...upstreams.values()].map((each) => limiter.run(() => tryUpstream(each, options)));
    return summarize(await Promise.all(tried), (count) => (count === 1 ? '1 answers' : `${count} answer`));
  });
}

interface Tried {
  text: string;
  /** Null when this version does not support it; `problem` says why. */
  upstream: Upstream | null;
  problem: string;
  isHttp: boolean;
  tls: UpstreamTls;
}

function triedFor(tunnel: Tunnel): Tried {
  const text = tunnel.forwards_to;
  const isHttp = beginsWithHttp1(tunnel);
  try {
    const upstream = parseUpstream(text);
    return { text, upstream, problem: '', isHttp, tls: tlsOf(upstream, tunnel) };
  } catch (error) {
    return { text, upstream: null, problem: messageOf(error), isHttp, tls: {} };
  }
}

async function tryUpstream(
  { text, upstream, problem, isHttp, tls }: Tried,
  shared: Parameters<typeof checkHttp>[2],
): Promise<Result> {
  if (upstream === null) return failed(`${text}: ${problem}`, upstreamAdvice(null));
  const options = { ...shared, tls };
  try {
    await options.guard.check(upstream);
  } catch (error) {
    return failed(`${text}: ${messageOf(error)}`, upstreamAdvice(error instanceof ApiError ? error.code : null));
  }
  try {
    const socket = await connectUpstream(upstream, { ...options, http2: !isHttp });
    if (!isHttp) {
      socket.destroy();
      return ok(text);
    }
    const { problem, exposedPath } = await checkHttp(socket, upstream, options);
    if (problem !== null) return failed(`${text} ${problem}`, CHANGE_UPSTREAM);
    if (exposedPath === null) return ok(text);
    return failed(
      `${text} serves the data folder with its secrets at ${exposedPath}`,
      'serve another folder, then rotate the API token and the authtoken',
    );
  } catch (error) {
    if (error instanceof UpstreamFault) return failed(`${text} ${error.summary}`, error.advice ?? CHANGE_TLS);
    return failed(`${text} does not answer (${messageOf(error)})`, START_UPSTREAM);
  }
}

type Good = Extract<FileContent, { state: 'good' }>;

/** Checks the file of the tunnels and its backup copy for damage. */
export function tunnelFileCheck(file: Promise<TunnelFile>): Check {
  return { name: 'tunnels-file', title: 'Tunnels on disk', run: async () => judge(await file) };
}

function judge({ path, main, backup, damaged }: TunnelFile): Result | Result[] {
  const kept = damaged.length > 0 ? `; set aside earlier: ${damaged.join(', ')}` : '';
  const { problem: copy } = problemOf(backupOf(path), backup);
  if (main.state === 'good') {
    const found = [ok(`${count(main.tunnels.length)} in ${path}${kept}`), ...unusable(path, main, backup)];
    return copy === null ? found : [...found, failed(copy, 'the next start replaces it; check dmesg for disk errors')];
  }
  const { problem } = problemOf(path, main);
  if (main.state === 'unusable') return failed(problem ?? path, null);
  if (backup.state === 'good') {
    const what = problem ?? `${path} is missing`;
    return failed(
      `${what}; its copy has ${count(backup.tunnels.length)}`,
      'the agent uses that copy at its next start and keeps the damaged file; check dmesg for disk errors',
    );
  }
  if (main.state === 'missing') return copy === null ? ok(`none yet${kept}`) : failed(copy, null);
  return failed(
    `${problem} and has no good copy`,
    `restore ${basename(path)} from a backup; the agent would start without tunnels and keep the damaged file`,
  );
}

function unusable(path: string, main: Good, backup: FileContent): Result[] {
  if (main.leftOut.length === 0) return [];
  const copied = tunnelsIn({ main, backup }).length - main.tunnels.length;
  const start = copied > 0 ? `takes ${count(copied)} from ${backupOf(path)}` : 'starts without these tunnels';
  const remedy = `correct it before the next start; otherwise the agent ${start} and keeps a copy of the file`;
  return [failed(`unusable tunnels in ${path}: ${main.leftOut.join('; ')}`, remedy)];
}

function problemOf(path: string, content: FileContent): { problem: string | null } {
  if (content.state === 'damaged') return { problem: `${path} is damaged (${firstLine(content.reason)})` };
  return { problem: content.state === 'unusable' ? content.reason : null };
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}

function count(tunnels: number): string {
  return `${tunnels} ${tunnels === 1 ? 'tunnel' : 'tunnels'}`;
}
