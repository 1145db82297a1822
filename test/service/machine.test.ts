import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { unless } from '../support/requirements.ts';
import { SystemdMachine } from '../support/systemd-machine.ts';
import { until } from '../support/until.ts';

const booted = await SystemdMachine.boot();
const NO_SYSTEMD_MACHINE = booted === null ? 'root, systemd and namespaces are required' : null;
const DROP_IN = '/etc/systemd/system/device-agent.service.d/impatient.conf';
/** Shortens the waits of a real device. */
const IMPATIENT = '[Service]\nRestartSec=1\n';
const AUTHTOKEN = '/etc/device-agent/authtoken';
const SETTINGS = '/etc/device-agent/settings.env';

/** Waits for systemd. */
const eventually = (condition: () => Promise<boolean>, what: string) =>
  until(condition, what, { withinMs: 120_000, everyMs: 100 });

describe('the service under systemd', { timeout: 300_000, ...unless(NO_SYSTEMD_MACHINE) }, () => {
  const machine = booted as SystemdMachine;
  const status = () => machine.deviceAgent('service', 'status');
  const pi = ['setpriv', '--reuid=1000', '--regid=1000', '--clear-groups', SystemdMachine.NODE, SystemdMachine.CLI];
  /** Process id of the running agent; kill would take 0 for the caller's process group. */
  const pid = async () => {
    const found = await machine.property('device-agent', 'MainPID');
    if (!/^[1-9]\d*$/.test(found)) throw new Error(`the service has no process: ${(await status()).stdout}`);
    return found;
  };
  const isUp = async () => (await machine.property('device-agent', 'ActiveState')) === 'active';
  /** systemd may report a service as active just after its process has ended. */
  const isAnother = async (before: string) =>
    (await isUp()) && !['0', before].includes(await machine.property('device-agent', 'MainPID'));
  const reports = (text: string) =>
    eventually(async () => (await status()).stdout.includes(text), `service status: ${text}`);
  /** Installs the service, and waits until it runs. */
  const running = async (settings = 'AGENT_GATEWAY=embedded\n') => {
    await machine.write(DROP_IN, IMPATIENT);
    await machine.deviceAgent('service', 'install');
    await machine.write(SETTINGS, settings);
    await machine.write(AUTHTOKEN, 'an-authtoken\n');
    await machine.run('systemctl', 'start', 'device-agent');
    await eventually(isUp, 'the service is active');
  };
  afterEach(async () => {
    for (const which of [[], ['--gateway']]) {
      await machine.deviceAgent('service', 'uninstall', '--purge', '--yes', ...which);
    }
    await machine.run('rm', '-f', DROP_IN);
  });
  afterAll(() => booted?.end());

  it('install from a private home directory enables the unit and asks for the authtoken', async () => {
    expect((await status()).code).toBe(4);
    await machine.write(DROP_IN, IMPATIENT);
    const { code, stdout, stderr } = await machine.deviceAgent('service', 'install');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/still needs the authtoken/);
    expect((await machine.run('systemctl', 'is-enabled', 'device-agent')).stdout).toBe('enabled\n');
    expect((await status()).code).toBe(3);
  });

  it('start without an authtoken logs what to do, and systemd restarts it until the authtoken is there', async () => {
    await machine.write(DROP_IN, IMPATIENT);
    await machine.write(SETTINGS, 'NGROK_SERVER_ADDR=127.0.0.1:9\n');
    await machine.deviceAgent('service', 'install');
    const { code } = await machine.run('systemctl', 'start', 'device-agent');
    expect(code).not.toBe(0);
    const told = /NGROK_AUTHTOKEN is not set.*\/etc\/device-agent\/authtoken/;
    await eventually(async () => told.test(await machine.journal('device-agent')), 'the journal names the authtoken');
    const restarts = async () => Number(await machine.property('device-agent', 'NRestarts'));
    await eventually(async () => (await restarts()) >= 2, 'two restarts');
    const { code: stateCode, stdout } = await status();
    expect(stateCode).toBe(3);
    expect(stdout).toMatch(/^device-agent: failing( \(exit-code, exit code 2\))?: journalctl -u device-agent$/m);
    await machine.write(AUTHTOKEN, 'an-authtoken\n');
    await machine.run('chmod', '600', AUTHTOKEN);
    await eventually(isUp, 'the service is active');
  });

  it('install again does not restart it; a restart applies another gateway, and status reports the session', async () => {
    await running('NGROK_SERVER_ADDR=127.0.0.1:9\n');
    await reports('connecting, 127.0.0.1:9 (connect ECONNREFUSED 127.0.0.1:9); 0 of 0 tunnels up');
    await machine.write(SETTINGS, 'AGENT_GATEWAY=embedded\n');
    const before = await pid();
    const again = await machine.deviceAgent('service', 'install', '--json');
    expect([again.code, JSON.parse(again.stdout)]).toEqual([
      0,
      { service: 'device-agent', report: expect.arrayContaining([expect.stringContaining('up to date')]) },
    ]);
    expect(await pid()).toBe(before);
    expect((await machine.run('systemctl', 'restart', 'device-agent')).code).toBe(0);
    await reports('reports: online, 127.0.0.1:');
  });

  it('systemctl reload reloads the settings as the service user', async () => {
    await running();
    await machine.write(SETTINGS, 'AGENT_GATEWAY=embedded\nLOG_LEVEL=warn\nAGENT_PORT=4041\n');
    expect((await machine.run('systemctl', 'reload', 'device-agent')).code).toBe(0);
    await eventually(
      async () => /"settings":\["AGENT_PORT"\].*need a restart/.test(await machine.journal('device-agent')),
      'the journal names AGENT_PORT',
    );
    expect(await isUp()).toBe(true);
    expect((await machine.run('stat', '-c', '%U:%G %a', SETTINGS)).stdout).toBe('root:device-agent 640\n');
  });

  it('restarts after a crash', async () => {
    await running();
    const before = await pid();
    await machine.run('kill', '-9', before);
    await eventually(() => isAnother(before), 'another process after the crash');
  });

  it('commands in another folder use its settings and data, as its user', async () => {
    await running();
    const tunnels = (...args: string[]) => machine.deviceAgent('tunnels', ...args);
    expect(await tunnels('start', '8001', '-d', 'one.localhost')).toMatchObject({ code: 0 });
    await machine.run('systemctl', 'stop', 'device-agent');
    await machine.write('/tmp/more.json', '{"https://two.localhost": {"forwards_to": "8002"}}');
    expect(await tunnels('import', '/tmp/more.json')).toMatchObject({ code: 0, stdout: 'created    two.localhost\n' });
    const owners = await machine.run('sh', '-c', 'stat -c %U /var/lib/device-agent/* | sort -u');
    expect(owners.stdout).toBe('device-agent\n');
    await machine.run('systemctl', 'start', 'device-agent');
    expect((await tunnels()).stdout).toMatch(/one\.localhost[\s\S]*two\.localhost/);
    const refused = await machine.run(...pi, 'tunnels', 'export');
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/only root.*run sudo .* tunnels export; /),
    ]);
    expect((await machine.run('ls', '/data')).code).not.toBe(0);
  });

  it.each([
    ['root', '/root'],
    ['pi', '/home/pi'],
  ] as const)(
    'beside the stopped service, the commands of %s speak of it and start no second agent',
    async (user, home) => {
      await machine.deviceAgent('service', 'install');
      const run = (...args: string[]) => machine.runIn(home, user, SystemdMachine.NODE, SystemdMachine.CLI, ...args);
      const diagnosed = await run('doctor');
      expect(diagnosed).toMatchObject(
        user === 'root'
          ? {
              code: 1,
              stdout: expect.stringMatching(/Service +device-agent: stopped[\s\S]*NGROK_AUTHTOKEN is not set/),
            }
          : { code: 1, stderr: expect.stringMatching(/only root can use .* run sudo \S+ \S+ doctor;/) },
      );
      await machine.write(SETTINGS, 'AGENT_GATEWAY=embedded\n');
      for (const args of [['http', '8001'], ['tunnels'], ['status'], ['watch'], ['health']]) {
        const { code, stderr } = await run(...args);
        const said =
          user === 'root'
            ? /the service device-agent is stopped; start it with: sudo systemctl start device-agent \(node .* doctor /
            : /is the service device-agent, whose state only root can see here: run sudo .* doctor\n$/; // without D-Bus
        expect([code, stderr], args.join(' ')).toEqual([3, expect.stringMatching(said)]);
        expect(stderr).not.toMatch(/(?:cli\.js|device-agent) run\b/);
      }
      for (const args of [[], ['run']]) {
        const { code, stderr } = await run(...args);
        expect([code, stderr]).toEqual([
          1,
          expect.stringMatching(/service device-agent: start it with sudo systemctl/),
        ]);
      }
      expect((await machine.run('ls', `${home}/data`)).code).not.toBe(0);
    },
  );

  it('in the folder of a project, commands of root and of a user reach the service, and read no setting of the project', async () => {
    await running();
    const shop = '/home/pi/shop';
    const files = { '.env': 'PORT=3000\nLOG_LEVEL=verbose\nDATA_DIR=./storage\n', 'storage/tunnels.json': '["A3"]' };
    for (const [name, text] of Object.entries(files)) await machine.write(`${shop}/${name}`, text);
    await machine.run('chown', '-R', '1000:1000', shop);
    const run = (user: 'root' | 'pi', ...args: string[]) =>
      machine.runIn(shop, user, SystemdMachine.NODE, SystemdMachine.CLI, ...args);
    expect(await run('pi', 'http', '8001', '-d', 'shop.localhost')).toMatchObject({ code: 0 });
    for (const user of ['root', 'pi'] as const) {
      expect((await run(user, 'tunnels')).stdout).toContain('https://shop.localhost');
    }
    expect((await run('root', 'tunnels', 'export')).stdout).toContain('shop.localhost');
    await machine.write(SETTINGS, 'AGENT_GATEWAY=embedded\nAGENT_PORT=4141\n');
    await machine.run('systemctl', 'restart', 'device-agent');
    expect((await run('root', 'tunnels')).stdout).toContain('https://shop.localhost');
    const { code, stderr } = await run('pi', 'tunnels');
    expect([code, stderr]).toEqual([3, expect.stringMatching(/is the service device-agent, .* run sudo .* doctor\n$/)]);
    const left = await machine.run('sh', '-c', `cd ${shop} && find . -type f | sort && cat storage/*`);
    expect(left.stdout).toBe('./.env\n./storage/tunnels.json\n["A3"]');
  });

  it('notifies the watchdog, which restarts it when it hangs', async () => {
    await running();
    await machine.write(DROP_IN, `${IMPATIENT}WatchdogSec=6\n`);
    await machine.run('systemctl', 'daemon-reload');
    await machine.run('systemctl', 'restart', 'device-agent');
    const before = await pid();
    const lastSign = () => machine.property('device-agent', 'WatchdogTimestampMonotonic');
    const first = await lastSign();
    await eventually(async () => (await lastSign()) !== first, 'a second watchdog notification');
    await machine.run('kill', '-STOP', before);
    await eventually(() => isAnother(before), 'another process after the watchdog');
    expect((await status()).stdout).toContain('with /etc/systemd/system/device-agent.service.d/impatient.conf');
  });

  it('install does not overwrite an edited unit, and needs root', async () => {
    await running();
    const unit = '/etc/systemd/system/device-agent.service';
    await machine.run('sed', '-i', 's/^Restart=always$/Restart=no/', unit);
    const { code, stderr } = await machine.deviceAgent('service', 'install');
    expect([code, stderr]).toEqual([1, expect.stringMatching(/was edited and is left unchanged.*systemctl edit/)]);
    expect((await machine.run('grep', '-c', '^Restart=no$', unit)).stdout).toBe('1\n');
    expect((await status()).stdout).toContain(`unit: ${unit} (edited)`);
    for (const command of ['install', 'uninstall']) {
      const refused = await machine.run(...pi, 'service', command, '--gateway');
      expect([refused.code, refused.stderr]).toEqual([
        1,
        expect.stringMatching(
          new RegExp(`^device-agent: root privileges required.*sudo .*cli.js service ${command} --gateway\n$`),
        ),
      ]);
    }
  });

  it('uninstall keeps the data, and --purge removes it', async () => {
    await running();
    expect((await machine.deviceAgent('service', 'uninstall')).code).toBe(0);
    expect((await status()).code).toBe(4);
    expect(await machine.property('device-agent', 'ActiveState')).toBe('inactive');
    const data = () => machine.run('ls', '/var/lib/device-agent/api-token', SETTINGS);
    expect((await data()).code).toBe(0);
    const again = await machine.deviceAgent('service', 'uninstall', '--purge', '--json');
    expect([again.code, JSON.parse(again.stdout)]).toEqual([
      0,
      { service: 'device-agent', report: expect.arrayContaining([expect.stringContaining('is not installed')]) },
    ]);
    expect((await data()).stdout).toBe('');
    expect((await machine.run('id', 'device-agent')).code).not.toBe(0);
  });

  it('--gateway installs, runs and removes a gateway', async () => {
    const install = () => machine.deviceAgent('service', 'install', '--gateway');
    const { stdout: next } = await install();
    expect(next).toMatch(
      /not started yet: set GATEWAY_DOMAIN.*\n.*settings\.env\n {2}node .* service install --gateway\n$/,
    );
    expect((await machine.run('systemctl', 'is-enabled', 'device-agent-gateway')).stdout).toBe('disabled\n');
    const init = () => machine.deviceAgent('gateway', 'init', '--domain', 'gateway.lan', '--json');
    const made = await init();
    expect([made.code, made.stderr]).toEqual([0, '']);
    expect(JSON.parse(made.stdout)).toMatchObject({ created: true, api_key: { id: expect.stringMatching(/^ak_/) } });
    const settings = () => machine.run('cat', '/etc/device-agent-gateway/settings.env');
    const written = await settings();
    expect(written.stdout).toMatch(/^GATEWAY_DOMAIN=gateway\.lan\nGATEWAY_HOST=0\.0\.0\.0\nGATEWAY_HTTPS_PORT=443\n/m);
    const again = JSON.parse((await init()).stdout);
    expect(again).toMatchObject({ created: false, api_key: null });
    expect(again.findings[0]).toMatchObject({ check: 'ports', detail: expect.stringContaining('the gateway runs') });
    expect(await settings()).toEqual(written);
    const gateway = async (name: string) => machine.property('device-agent-gateway', name);
    await eventually(
      async () => (await gateway('StatusText')).startsWith('serving on port 443, agents at connect.gateway.lan'),
      'the gateway reports its ports',
    );
    expect(await gateway('ActiveState')).toBe('active');
    expect(await machine.journal('device-agent-gateway')).toContain('gateway listening');
    expect((await machine.deviceAgent('service', 'status', '--gateway')).code).toBe(0);
    expect((await machine.deviceAgent('gateway', 'api-key', 'create')).stderr).toContain(
      '/var/lib/device-agent-gateway',
    );
    expect((await machine.deviceAgent('gateway', 'backup', '/tmp/backup.tar.gz')).code).toBe(0);
    const owners = await machine.run('sh', '-c', 'stat -c %U /var/lib/device-agent-gateway/gateway/* | sort -u');
    expect(owners.stdout).toBe('device-agent-gateway\n');
    const { findings } = JSON.parse((await machine.deviceAgent('gateway', 'doctor', '--json')).stdout);
    const sound = findings.filter(({ status }: { status: string }) => status === 'ok');
    expect(sound.map(({ check }: { check: string }) => check)).toEqual(
      expect.arrayContaining(['service', 'settings', 'data-folder', 'database', 'ca', 'ports', 'certificates']),
    );
    const ca = await machine.run('cat', '/var/lib/device-agent-gateway/gateway/ca.pem');
    await machine.run('cp', '/var/lib/device-agent-gateway/gateway/encryption.key', '/tmp/kept.key');
    const purge = (...args: string[]) => machine.deviceAgent('service', 'uninstall', '--gateway', '--purge', ...args);
    expect(await purge()).toMatchObject({ code: 2, stderr: expect.stringMatching(/certificate authority.*add --yes/) });
    expect((await machine.run('ls', '/var/lib/device-agent-gateway/gateway/ca-key.pem')).code).toBe(0);
    expect((await purge('--yes')).code).toBe(0);
    expect((await machine.run('ls', '/var/lib/device-agent-gateway')).code).not.toBe(0);

    // As on another machine.
    await install();
    const restored = await machine.deviceAgent(
      'gateway',
      'restore',
      '/tmp/backup.tar.gz',
      '--key-file',
      '/tmp/kept.key',
    );
    expect(restored).toMatchObject({ code: 0, stderr: expect.stringContaining('is restored into') });
    expect((await install()).stdout).toContain('is running and starts at boot');
    await eventually(
      async () => (await gateway('StatusText')).startsWith('serving on port 443, agents at connect.gateway.lan'),
      'the restored gateway serves',
    );
    expect((await machine.run('cat', '/var/lib/device-agent-gateway/gateway/ca.pem')).stdout).toBe(ca.stdout);
    const socket = (name: string) => machine.property('device-agent-gateway.socket', name);
    const opened = await socket('ActiveEnterTimestampMonotonic');
    const before = await gateway('MainPID');
    await machine.run('systemctl', 'restart', 'device-agent-gateway');
    await machine.run('kill', '-9', await gateway('MainPID'));
    await eventually(
      async () => (await gateway('SubState')) === 'running' && (await gateway('NRestarts')) === '1',
      'another process after the crash',
    );
    expect(await gateway('MainPID')).not.toBe(before);
    expect([await socket('ActiveState'), await socket('ActiveEnterTimestampMonotonic')]).toEqual(['active', opened]);
    const edited = 's/^GATEWAY_HTTPS_PORT=443$/GATEWAY_HTTPS_PORT=8443/';
    await machine.run('sed', '-i', edited, '/etc/device-agent-gateway/settings.env');
    await machine.run('systemctl', 'restart', 'device-agent-gateway');
    expect(await machine.journal('device-agent-gateway')).toMatch(
      /systemd holds a socket at 0\.0\.0\.0:443, but the settings name 0\.0\.0\.0:8443 \(GATEWAY_HTTPS_PORT\).*run sudo device-agent service install --gateway/,
    );
    expect((await install()).stdout).toMatch(/device-agent-gateway\.socket: written\n.*is running/);
    expect(await socket('Listen')).toMatch(/^0\.0\.0\.0:8443 .*\n?0\.0\.0\.0:80 /);
    await eventually(async () => (await gateway('StatusText')).startsWith('serving on port 8443'), 'the other port');
    await machine.run('systemctl', 'stop', 'device-agent-gateway');
    await eventually(async () => (await socket('ActiveState')) === 'inactive', 'the sockets are closed');
    // What differs from the backup is kept.
    expect((await machine.deviceAgent('gateway', 'api-key', 'create')).code).toBe(0);
    const over = await machine.deviceAgent('gateway', 'restore', '/tmp/backup.tar.gz', '--json');
    expect([over.code, JSON.parse(over.stdout)]).toEqual([
      0,
      { made_at: expect.stringMatching(/Z$/), replaced: expect.stringContaining('/gateway/replaced-') },
    ]);
    expect((await machine.run('systemctl', 'start', 'device-agent-gateway')).code).toBe(0);
    const files = 'stat -c %U /var/lib/device-agent-gateway/gateway/* | sort -u';
    expect((await machine.run('sh', '-c', files)).stdout).toBe('device-agent-gateway\n');
    expect((await purge('--yes')).code).toBe(0);
  });
});
