import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { writeDurably } from '../lib/files/durable-write.ts';
import { BrowserSessions, type SessionEnds } from '../lib/http/browser-sessions.ts';
import type { Log } from '../lib/log/log.ts';
import { AgentError } from './errors/agent-error.ts';

/** File in the data folder with digests of the sessions. */
const FILE = 'page-sessions.json';

const Content = z.object({
  /** Digest of the API token that they were started under: with another one, they are void. */
  token: z.string(),
  sessions: z.record(z.string(), z.number()),
});

/** The sessions of browsers at the agent's page. They survive a restart, but not a new API token. */
export async function openPageSessions(
  dataDir: string,
  token: () => string,
  log: Log,
  now: () => number = Date.now,
): Promise<BrowserSessions> {
  const file = join(dataDir, FILE);
  const kept = await readSessions(file, token(), log);
  let writing: Promise<void> = Promise.resolve();
  const write = (sessions: SessionEnds): Promise<void> => {
    const text = `${JSON.stringify({ token: digest(token()), sessions: Object.fromEntries(sessions) })}\n`;
    // One after another: the last one has the last state.
    const written = writing.then(() => writeDurably(file, text, 0o600));
    writing = written.catch(() => {});
    return written;
  };
  const save = async (sessions: SessionEnds) => {
    try {
      await write(sessions);
    } catch (error) {
      const problem = 'sessions could not be saved: they change only until the agent restarts; check the disk';
      throw new AgentError('ERR_AGENT_NOT_PERSISTED', `${problem} (${messageOf(error)})`, { cause: error });
    }
  };
  return new BrowserSessions({ kept, save, now });
}

/** Sessions are easily started again, so a damaged file is no reason not to start. */
async function readSessions(file: string, token: string, log: Log): Promise<SessionEnds> {
  try {
    const content = Content.parse(JSON.parse(await readFile(file, 'utf8')));
    return new Map(content.token === digest(token) ? Object.entries(content.sessions) : []);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT')) log.warn({ file, reason: messageOf(error) }, 'page sessions unreadable; all ended');
    return new Map();
  }
}

function digest(token: string): string {
  return createHash('sha256').update('page sessions').update(token).digest('base64url');
}
