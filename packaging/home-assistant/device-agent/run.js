// Starts the agent as an app of Home Assistant: options become settings, and Home Assistant's page shows the device's page. It runs
// in the image, which has nothing to import but Node.js.
import { spawn } from 'node:child_process';
import { chownSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { fileURLToPath } from 'node:url';

/** The user of the agent's image. */
const USER = 65532;
/** Home Assistant's own network: this machine, and the one program in it that may ask for the page. */
const INGRESS_HOST = '172.30.32.1';
const SUPERVISOR = '172.30.32.2';
/** As in config.yaml. */
const INGRESS_PORT = 40404;
const HOME_ASSISTANT_PORT = 8123;

/** The setting of each option that is passed on as it is. */
export const SETTING_OF = {
  join_code: 'AGENT_JOIN_CODE',
  authtoken: 'NGROK_AUTHTOKEN',
  gateway: 'NGROK_SERVER_ADDR',
  gateway_ca: 'NGROK_CA_CERT',
  log_level: 'LOG_LEVEL',
};

/**
 * @typedef {Partial<Record<keyof typeof SETTING_OF, string>> & {
 *   home_assistant_domain?: string, settings?: { name: string, value: string }[] }} Options
 */

/**
 * The settings of the agent for the app's options. Further settings count more than the options before them.
 *
 * @param {Options} options
 * @returns {Record<string, string>}
 */
export function settingsOf(options) {
  const named = Object.entries(SETTING_OF).map(([option, name]) => [
    name,
    options[/** @type {keyof typeof SETTING_OF} */ (option)] ?? '',
  ]);
  return Object.fromEntries([
    ...named.filter(([, value]) => value !== ''),
    ...(options.settings ?? []).map(({ name, value }) => [name, value]),
  ]);
}

/**
 * The file that declares the tunnel to Home Assistant; null without a domain for it.
 *
 * @param {Options} options
 * @returns {string | null}
 */
export function declaredTunnels({ home_assistant_domain: domain = '' }) {
  return domain === '' ? null : JSON.stringify({ tunnels: [{ domain, forwards_to: HOME_ASSISTANT_PORT }] });
}

/** Headers of a browser that the agent's page needs; all others are Home Assistant's. */
const PASSED = ['accept', 'accept-encoding', 'content-type', 'content-length', 'last-event-id', 'sec-fetch-site'];

/**
 * Serves the device's page to Home Assistant, which has signed in its users. For the agent, it is a program of this machine.
 *
 * @param {{ agentPort: number, client: string }} parts the port of the agent's API; who may ask, by its address
 * @returns {import('node:http').Server}
 */
export function ingress({ agentPort, client }) {
  return createServer((req, res) => {
    const { origin, 'x-forwarded-host': host } = req.headers;
    const isForeign = origin !== undefined && !(URL.canParse(origin) && new URL(origin).host === host);
    if (req.socket.remoteAddress?.replace(/^::ffff:/, '') !== client || isForeign) {
      res.writeHead(403).end('only Home Assistant may show this page\n');
      return;
    }
    const headers = Object.fromEntries(
      PASSED.flatMap((name) => (req.headers[name] ? [[name, req.headers[name]]] : [])),
    );
    const asked = request({ port: agentPort, host: '127.0.0.1', path: req.url, method: req.method, headers });
    asked.on('response', (answer) => {
      const shown = { ...answer.headers };
      // Home Assistant shows the page in a frame of its own page.
      if (shown['x-frame-options']) shown['x-frame-options'] = 'SAMEORIGIN';
      const policy = String(shown['content-security-policy'] ?? '');
      if (policy) shown['content-security-policy'] = policy.replace("frame-ancestors 'none'", "frame-ancestors 'self'");
      res.writeHead(answer.statusCode ?? 502, shown);
      answer.pipe(res);
    });
    asked.on('error', (error) => {
      if (res.headersSent) res.destroy();
      else res.writeHead(502).end(`the agent does not answer: ${error.message}; see the app's log\n`);
    });
    res.on('close', () => asked.destroy());
    req.pipe(asked);
  });
}

/** @param {string} command of the agent */
function run(command) {
  /** @type {Options} */
  const options = JSON.parse(readFileSync('/data/options.json', 'utf8'));
  const tunnelsFolder = '/data/tunnels.d';
  for (const folder of [String(process.env.DATA_DIR), tunnelsFolder]) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    chownSync(folder, USER, USER);
  }
  process.setgroups?.([]);
  process.setgid?.(USER);
  process.setuid?.(USER);
  const env = { ...process.env, AGENT_TUNNELS_DIR: tunnelsFolder, ...settingsOf(options) };
  if (command === 'run') {
    const [file, tunnels] = [`${tunnelsFolder}/home-assistant.json`, declaredTunnels(options)];
    if (tunnels === null) rmSync(file, { force: true });
    else writeFileSync(file, tunnels, { mode: 0o600 });
    const agentPort = Number(/** @type {Record<string, string>} */ (env).AGENT_PORT ?? 4040);
    ingress({ agentPort, client: SUPERVISOR })
      .on('error', (error) => process.stderr.write(`no page in Home Assistant: ${error.message}\n`))
      .listen(INGRESS_PORT, INGRESS_HOST);
  }
  const flags = ['--max-semi-space-size=1', '--v8-pool-size=1', '--expose-gc'];
  const agent = spawn(process.execPath, [...flags, 'dist/cli.js', command], { env, stdio: 'inherit' });
  for (const signal of /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP']))
    process.on(signal, () => void agent.kill(signal));
  agent.on('exit', (code) => process.exit(code ?? 1));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) run(process.argv[2] ?? 'run');
