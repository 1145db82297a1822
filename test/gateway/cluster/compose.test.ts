import { afterAll, expect, it } from 'vitest';
import { clusterCompose } from '../../support/cluster-compose.ts';
import { NO_POSTGRES, POSTGRES_PROGRAMS } from '../../support/postgres-server.ts';
import { firstOf, programMissing, unless } from '../../support/requirements.ts';
import { SystemdMachine } from '../../support/systemd-machine.ts';
import { until } from '../../support/until.ts';

/** Has the network of the compose file to itself; and a device. */
const booted = [await SystemdMachine.boot(), await SystemdMachine.boot()];
const machines = booted.filter((machine) => machine !== null);
const MISSING = firstOf(
  machines.length < 2 ? 'root, systemd and namespaces are required' : null,
  NO_POSTGRES,
  programMissing('haproxy', '-v'),
);
afterAll(() => Promise.all(machines.map((machine) => machine.end())));

const BALANCER = '172.30.0.10';
/** Where it is reached from outside. */
const PUBLIC = '10.9.0.1';
const NAMES = ['connect', 'api', 'agent-cabinet.home', 'camera.home'].map((name) => `${name}.gateway.example.com`);

async function run(machine: SystemdMachine, ...command: string[]): Promise<string> {
  const { code, stdout, stderr } = await machine.run(...command);
  expect(code, `${command.join(' ')}: ${stderr}`).toBe(0);
  return stdout;
}

/** Starts a program that runs until the machine ends. */
function start(machine: SystemdMachine, unit: string, env: Record<string, string>, ...command: string[]) {
  const settings = Object.entries(env).map(([name, value]) => `--setenv=${name}=${value}`);
  return run(
    machine,
    'systemd-run',
    '--quiet',
    '--property=LimitNOFILE=65536',
    `--unit=${unit}`,
    ...settings,
    ...command,
  );
}

it('the gateways, database and balancer of the compose file serve a device that joins, also when a gateway dies', {
  timeout: 300_000,
  ...unless(MISSING),
}, async () => {
  const [server, device] = machines as [SystemdMachine, SystemdMachine];
  const { settings, balancer } = clusterCompose();
  const { NODE, CLI } = SystemdMachine;
  for (const machine of machines) {
    await machine.write('/etc/nsswitch.conf', 'hosts: files\n');
    await machine.run('rm', '-f', '/etc/resolv.conf');
    await machine.write('/etc/hosts', `127.0.0.1 localhost database\n${PUBLIC} ${NAMES.join(' ')}\n`);
  }
  await server.connect(`${PUBLIC}/30`, device, '10.9.0.2/30');
  await device.run('hostname', 'cabinet');
  for (const last of [10, 11, 12, 13]) await run(server, 'ip', 'address', 'add', `172.30.0.${last}/32`, 'dev', 'lo');

  const unprivileged = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];
  await run(server, 'install', '-d', '-o', '65534', '/var/pg');
  const initdb = [`${POSTGRES_PROGRAMS}/initdb`, '-D', '/var/pg/data', '-U', 'gateway', '--auth=trust'];
  await run(server, ...unprivileged, ...initdb);
  const database = ['-D', '/var/pg/data', '-k', '/var/pg'];
  await start(server, 'database', {}, ...unprivileged, `${POSTGRES_PROGRAMS}/postgres`, ...database);
  await until(
    async () =>
      (await server.run(`${POSTGRES_PROGRAMS}/createdb`, '-h', '127.0.0.1', '-U', 'gateway', 'gateway')).code === 0,
    'the database',
    { everyMs: 200 },
  );
  const gateway = (name: string) => ({ ...settings[name], DATA_DIR: `/var/${name}` });
  const startGateway = (name: string) => {
    // In a container, all addresses are its own.
    const [GATEWAY_HOST = ''] = settings[name]?.GATEWAY_NODE_ADDRESS?.split(':') ?? [];
    return start(server, name, { ...gateway(name), GATEWAY_HOST }, NODE, CLI, 'gateway');
  };
  for (const name of Object.keys(settings)) await startGateway(name);
  // In a container, all addresses and many files are its own.
  const config = balancer
    .replace('mode tcp\n', `mode tcp\n  source ${BALANCER}\n`)
    .replaceAll('bind :', `bind ${PUBLIC}:`)
    .replace(/maxconn \d+/, 'maxconn 200');
  await server.write('/etc/balancer.cfg', config);
  await start(server, 'balancer', {}, 'haproxy', '-f', '/etc/balancer.cfg');

  const env = Object.entries(gateway('two')).map(([name, value]) => `${name}=${value}`);
  const command = (...args: string[]) => run(server, 'env', ...env, NODE, CLI, 'gateway', ...args);
  const areThere = async () => JSON.parse(await command('nodes', '--json')).length === 3;
  await until(areThere, 'three gateways', { everyMs: 500 });
  const [code = ''] =
    /join-[\w-]+/.exec(await command('invite', '--site', 'home.gateway.example.com', '--tcp', '20000-20099')) ?? [];
  expect(await run(device, NODE, CLI, 'join', code)).toContain(
    'online: https://agent-cabinet.home.gateway.example.com\n',
  );

  const echo = `require('http').createServer((req, res) => res.end(req.headers['x-forwarded-for'])).listen(8001)`;
  await start(device, 'camera', {}, NODE, '-e', echo);
  expect((await device.deviceAgent('tunnels', 'start', '8001', '-d', 'camera')).code).toBe(0);
  const ask =
    'curl -sS --max-time 5 --cacert /etc/device-agent/gateway-ca.pem https://camera.home.gateway.example.com/';
  const isServed = async () => (await device.run('sh', '-c', ask)).stdout === '10.9.0.2';
  await until(isServed, 'the tunnel through the balancer', { everyMs: 200 });
  const tcp = await run(device, NODE, CLI, 'tunnels', 'start', '8001', '-p', 'tcp');
  const [, port = ''] = /tcp:\/\/[^:]+:(\d+)/.exec(tcp) ?? [];
  const isServedByTcp = async () =>
    (await device.run('curl', '-sS', '--max-time', '5', `http://${PUBLIC}:${port}/`)).code === 0;
  await until(isServedByTcp, 'the tcp tunnel through the balancer', { everyMs: 200 });

  for (const name of Object.keys(settings)) {
    await run(server, 'systemctl', 'kill', '--signal=KILL', name);
    await until(isServed, `the tunnel without gateway ${name}`, { everyMs: 200 });
    await until(isServedByTcp, `the tcp tunnel without gateway ${name}`, { everyMs: 200 });
    await run(server, 'systemctl', 'reset-failed', name);
    await startGateway(name);
    await until(isServed, `the tunnel with gateway ${name}`, { everyMs: 200 });
  }
});
