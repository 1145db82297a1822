import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

interface Published {
  topic?: string;
  message?: string;
  title?: string;
  priority?: number;
  tags?: string[];
  actions?: { action: string; label: string; url: string }[];
}

/** A server that takes and answers what ntfy does when JSON is published, as its documentation say. */
export interface NtfyServer {
  /** URL of a topic. */
  readonly topic: string;
  readonly published: Published[];
  close(): Promise<void>;
}

const refusal = (code: number, http: number, error: string) => ({
  ...{ code, http, error, link: 'https://ntfy.sh/docs/publish/' },
});

/** @param token that publishing needs */
export async function startNtfyServer(token: string): Promise<NtfyServer> {
  const published: Published[] = [];
  const server = createServer(async (req, res) => {
    const body = await text(req);
    const answer = (status: number, json: object) =>
      res.writeHead(status, { 'content-type': 'application/json' }).end(`${JSON.stringify(json)}\n`);
    if (req.method !== 'POST' || req.url !== '/') return answer(404, refusal(40401, 404, 'page not found'));
    if (req.headers.authorization !== `Bearer ${token}`)
      return answer(req.headers.authorization ? 401 : 403, refusal(40101, 401, 'unauthorized'));
    const sent = JSON.parse(body) as Published;
    const { topic = '', priority = 3, actions = [] } = sent;
    if (!/^[-_A-Za-z0-9]{1,64}$/.test(topic)) return answer(400, refusal(40009, 400, 'invalid request: topic invalid'));
    if (priority < 1 || priority > 5) return answer(400, refusal(40007, 400, 'invalid request: priority invalid'));
    if (actions.length > 3 || actions.some(({ action, url }) => action !== 'view' || !URL.canParse(url)))
      return answer(400, refusal(40018, 400, 'invalid request: actions invalid'));
    published.push(sent);
    answer(200, { id: 'hwQ2YpKdmg', time: 1764472680, expires: 1764515880, event: 'message', ...sent });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    topic: `http://127.0.0.1:${(server.address() as AddressInfo).port}/quarry-alarms`,
    published,
    close: () => new Promise((resolve) => void server.close(() => resolve())),
  };
}
