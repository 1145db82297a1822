import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { Response, Router } from 'express';
import { ApiError, hasErrno } from '../../lib/errors.ts';
import type { RateLimit } from '../../lib/time/token-bucket.ts';
import { AGENT_UPDATES_PATH, AgentUpdateReport, RELEASES_PATH } from '../../management/resources/agent-update.ts';
import { fileNamed, manifestNamed, mirroredReleases } from '../../update/release-mirror.ts';
import type { FleetUpdates } from '../releases/fleet-updates.ts';
import { type AgentRoutes, agentAccess } from './agent-access.ts';
import type { ApiContext } from './api-context.ts';
import { strictRouter } from './operation-router.ts';
import { readBody } from './request.ts';

/** What the agents of one authtoken may ask for. */
const OF_AUTHTOKEN: RateLimit = { requests: 60, windowMs: 60_000 };
/** Downloads at a time, so that a fleet that updates leaves the line to tunnels; one for each authtoken. */
const MAX_DOWNLOADS = 8;
/** When a download that found no place may be tried again. */
const BUSY_S = 15;
/** For so long, a download has its place; it continues with another request. */
const PLACE_MS = 30 * 60_000;

/** The routes for agents that update, which have an authtoken but no API key: approved releases, and whether to install one. */
export function agentUpdatesRouter(
  context: ApiContext & { fleetUpdates: FleetUpdates; dataDir: string },
  routes: AgentRoutes,
): Router {
  const { fleetUpdates, dataDir } = context;
  const { clock, withBody } = routes;
  const agentOf = agentAccess(context, routes, OF_AUTHTOKEN, 'updates');
  const downloading = new Set<string>();
  const router = strictRouter();
  router.post(AGENT_UPDATES_PATH, ...withBody, async (req, res) => {
    const { authtoken, ...report } = readBody(AgentUpdateReport, 'POST', req.body);
    const { id } = await agentOf(authtoken, req);
    res.json(await fleetUpdates.take(id, report));
  });
  router.get(`${RELEASES_PATH}/:name`, async (req, res) => {
    const [, authtoken = ''] = /^Bearer +(\S+)$/i.exec(req.headers.authorization ?? '') ?? [];
    const { id } = await agentOf(authtoken, req);
    const name = String(req.params.name);
    const releases = mirroredReleases(dataDir);
    const manifest = manifestNamed(name, releases);
    if (manifest !== null) return void res.type('json').send(manifest);
    const file = fileNamed(name, releases);
    if (file === null) throw notMirrored(name);
    if (downloading.has(id) || downloading.size >= MAX_DOWNLOADS) throw busy();
    downloading.add(id);
    const end = clock.after(PLACE_MS, () => res.destroy());
    try {
      await sendFile(file, req.headers.range, res);
    } finally {
      end();
      downloading.delete(id);
    }
  });
  return router;
}

/** Sends a file, or the rest of it from where an earlier download has ended. */
async function sendFile({ path, size }: { path: string; size: number }, range: string | undefined, res: Response) {
  const [, first] = /^bytes=(\d{1,15})-$/.exec(range ?? '') ?? [];
  const start = Number(first ?? 0);
  if (first !== undefined && start >= size) {
    res.set('Content-Range', `bytes */${size}`).status(416).end();
    return;
  }
  const file = await open(path).catch((error: unknown) => {
    throw hasErrno(error, 'ENOENT') ? notHere() : error;
  });
  res.set({ 'Content-Type': 'application/octet-stream', 'Content-Length': String(size - start) });
  if (first !== undefined) res.status(206).set('Content-Range', `bytes ${start}-${size - 1}/${size}`);
  // The pipeline's own, besides those of the API: Node.js warns of more than ten.
  res.setMaxListeners(20);
  await pipeline(file.createReadStream({ start, end: size - 1 }), res).catch((error: NodeJS.ErrnoException) => {
    // A device that has left continues later.
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
}

function notMirrored(name: string): ApiError {
  return new ApiError(
    404,
    'ERR_GATEWAY_NO_RELEASE',
    `${name}: no approved release has it; approve one on the gateway with "device-agent gateway releases add"`,
  );
}

function notHere(): ApiError {
  return new ApiError(
    503,
    'ERR_GATEWAY_RELEASE_MISSING',
    'the file is missing at this gateway; run "device-agent gateway releases add" on it again',
  );
}

function busy(): ApiError {
  return new ApiError(503, 'ERR_GATEWAY_BUSY', `other devices download; try again in ${BUSY_S} s`, {
    retryAfter: BUSY_S,
  });
}
