import { basename } from 'node:path';
import { type FileContent, type SavedTunnels, type Tunnel, tunnelsFile } from '../agent/offline/saved-tunnels.ts';
import { type TriedUpstream, tryUpstream, upstreamOf } from '../agent/upstreams/try-upstream.ts';
import { backupOf } from '../lib/files/durable-file.ts';
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
    allow: allowUpstreams,
    verifyTls,
    upstreamCas,
    connectMs: ANSWER_MS * patience,
    privateFile: tunnelsFile(dataDir),
  };
  return check('upstreams', 'Upstreams', async () => {
    // An upstream of an http tunnel and of others is checked as that of the http tunnel.
    const upstreams = new Map<string, TriedUpstream>();
    for (const tunnel of await tunnels) {
      const found = upstreamOf(tunnel);
      const key = `${found.text} ${JSON.stringify(found.tls)}`;
      upstreams.set(key, { ...found, isHttp: found.isHttp || upstreams.get(key)?.isHttp === true });
    }
    if (upstreams.size === 0) return skipped('no tunnels');
    const tried = [...upstreams.values()].map((each) => limiter.run(() => resultOf(each, options)));
    return summarize(await Promise.all(tried), (count) => (count === 1 ? '1 answers' : `${count} answer`));
  });
}

async function resultOf(tried: TriedUpstream, options: Parameters<typeof tryUpstream>[1]): Promise<Result> {
  const { text } = tried;
  const found = await tryUpstream(tried, options);
  switch (found.kind) {
    case 'good':
      return ok(text);
    case 'refused':
      return failed(`${text}: ${found.problem}`, upstreamAdvice(found.code));
    case 'wrong':
      return failed(`${text} ${found.problem}`, CHANGE_UPSTREAM);
    case 'fault':
      return failed(`${text} ${found.problem}`, found.advice ?? CHANGE_TLS);
    case 'silent':
      return failed(`${text} does not answer (${found.problem})`, START_UPSTREAM);
    case 'exposed':
      return failed(
        `${text} serves the data folder with its secrets at ${found.path}`,
        'serve another folder, then rotate the API token and the authtoken',
      );
  }
}

type Good = Extract<FileContent, { state: 'good' }>;

/** Checks the file of the tunnels and its backup copy for damage. */
export function tunnelFileCheck(file: Promise<SavedTunnels>): Check {
  return { name: 'tunnels-file', title: 'Tunnels on disk', run: async () => judge(await file) };
}

function judge({ path, main, backup, damaged, tunnels }: SavedTunnels): Result | Result[] {
  const kept = damaged.length > 0 ? `; set aside earlier: ${damaged.join(', ')}` : '';
  const { problem: copy } = problemOf(backupOf(path), backup);
  if (main.state === 'good') {
    const found = [ok(`${count(main.tunnels.length)} in ${path}${kept}`), ...unusable(path, main, tunnels.length)];
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

function unusable(path: string, main: Good, usable: number): Result[] {
  if (main.leftOut.length === 0) return [];
  const copied = usable - main.tunnels.length;
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
