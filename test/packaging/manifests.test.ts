import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { declaredTunnels, SETTING_OF, settingsOf } from '../../packaging/home-assistant/device-agent/run.js';
import { staleManifests } from '../../scripts/manifests.js';
import { VARIABLES } from '../../src/settings/variables.ts';
import { programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import kubernetes from './schemas/kubernetes.json' with { type: 'json' };

const NO_HELM = programMissing('helm', 'version');
const NO_COMPOSE = programMissing('docker-compose', 'version');
const read = (path: string) => readFileSync(path, 'utf8');

/** What the manifests of Kubernetes have in common, as far as tests look. */
interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  data?: Record<string, string>;
  spec?: {
    template?: { spec: { securityContext: object; containers: { securityContext: object; livenessProbe: object }[] } };
  };
}

it('all manifests have the version of package.json and the names of publication.json', () => {
  expect(staleManifests().map(([path]) => path)).toEqual([]);
});

describe('Kubernetes', () => {
  const ajv = new Ajv({ strict: false });
  ajv.addSchema({ definitions: kubernetes.definitions }, 'kubernetes');
  const kinds: Readonly<Record<string, string>> = kubernetes.kinds;

  /** The manifests in a text; fails for one that does not have the schema of its kind, or a member that the schema lacks. */
  function checked(text: string): Manifest[] {
    const manifests = parseAllDocuments(text)
      .map((document) => document.toJS() as Manifest | null)
      .filter((each) => each !== null);
    for (const manifest of manifests) {
      const definition = kinds[`${manifest.apiVersion} ${manifest.kind}`];
      expect(definition, `${manifest.apiVersion} ${manifest.kind}`).toBeDefined();
      ajv.validate(`kubernetes#/definitions/${definition}`, manifest);
      expect(ajv.errors ?? [], manifest.metadata.name).toEqual([]);
      for (const name of Object.keys(manifest.data ?? {}).filter((each) => /^[A-Z]/.test(each)))
        expect(VARIABLES).toHaveProperty(name);
      const pod = manifest.spec?.template?.spec;
      if (pod === undefined) continue;
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, fsGroup: 65532 });
      for (const { securityContext, livenessProbe } of pod.containers) {
        expect(securityContext).toMatchObject({ readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } });
        expect(livenessProbe).toMatchObject({ exec: { command: expect.arrayContaining(['health']) } });
      }
    }
    return manifests;
  }
  const kindsIn = (manifests: Manifest[]) => manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort();

  it('the plain manifests have the schemas of their kinds, an unprivileged pod with a read-only root, and probes', () => {
    const names = (name: string) => [`ConfigMap ${name}`, `Service ${name}`, `StatefulSet ${name}`];
    expect(kindsIn(checked(read('packaging/kubernetes/agent.yaml')))).toEqual(names('device-agent'));
    expect(kindsIn(checked(read('packaging/kubernetes/gateway.yaml')))).toEqual(names('device-agent-gateway'));
  });

  it('the chart’s default values have its own schema', () => {
    const validate = new Ajv({ strict: false }).compile(
      JSON.parse(read('packaging/helm/device-agent/values.schema.json')),
    );
    validate(parse(read('packaging/helm/device-agent/values.yaml')));
    expect(validate.errors).toBeNull();
  });

  describe('with helm', unless(NO_HELM), () => {
    const CHART = 'packaging/helm/device-agent';
    const helm = (...args: string[]) => execFileSync('helm', args, { encoding: 'utf8', stdio: 'pipe' });
    const template = (...values: string[]) =>
      helm('template', 'edge', CHART, '--kube-version=1.34.0', ...values.map((value) => `--set=${value}`));

    it('the chart has no findings, and its manifests have the schemas of their kinds', () => {
      expect(helm('lint', '--strict', CHART)).toContain('0 chart(s) failed');
      const agent = checked(template('agent.existingSecret=s', 'agent.settings.NGROK_CA_CERT=host'));
      expect(agent.map(({ kind }) => kind)).toEqual(['ConfigMap', 'ConfigMap', 'Service', 'StatefulSet']);
      const gateways = checked(
        template(
          'agent.enabled=false',
          'gateway.enabled=true',
          'gateway.domain=gateway.example.com',
          'gateway.replicas=3',
          'gateway.tcpPorts={20000}',
          'gateway.settings.GATEWAY_MAX_OPTIONS=67108864',
        ),
      );
      expect(gateways[0]?.data).toMatchObject({ GATEWAY_MAX_OPTIONS: '67108864', GATEWAY_HTTPS_PORT: '443' });
      expect(kindsIn(gateways)).toContain('Service edge-device-agent-gateway-nodes');
    });

    it('the chart says what is missing', () => {
      expect(() => template('gateway.enabled=true')).toThrow('gateway.domain is required');
      expect(() => template('gateway.settings.lower=1')).toThrow(/values don't meet the specifications/);
    });
  });
});

describe('Home Assistant', () => {
  const FOLDER = 'packaging/home-assistant/device-agent';
  const config = parse(read(`${FOLDER}/config.yaml`));

  it('the app’s configuration has what Home Assistant requires, and nothing that it refuses or has by default', () => {
    // The rules of Home Assistant's documentation of an app's configuration, for the members that are used.
    const option = { type: 'string', pattern: '^(str|password|int|bool|list\\(.+\\)|match\\(.+\\))\\??$' };
    const validate = new Ajv({ allowUnionTypes: true }).compile({
      type: 'object',
      additionalProperties: false,
      required: ['name', 'version', 'slug', 'description', 'arch'],
      properties: {
        name: { type: 'string' },
        version: { type: 'string' },
        slug: { type: 'string', pattern: '^[-_.A-Za-z0-9]+$' },
        description: { type: 'string' },
        url: { type: 'string', pattern: '^https://' },
        image: { type: 'string', pattern: '^([a-zA-Z\\-.:\\d{}]+/)*?([\\-\\w{}]+)/([\\-\\w{}.]+)$' },
        arch: { type: 'array', items: { enum: ['aarch64', 'amd64'] }, uniqueItems: true, minItems: 1 },
        host_network: { const: true },
        ingress: { const: true },
        // 0, for a free port, or one of its own: others in the host's network may have the default.
        ingress_port: { type: 'integer', minimum: 0, maximum: 65535, not: { const: 8099 } },
        panel_icon: { type: 'string', pattern: '^mdi:' },
        panel_title: { type: 'string' },
        options: { type: 'object' },
        schema: {
          type: 'object',
          additionalProperties: {
            anyOf: [option, { type: 'array', items: { type: 'object', additionalProperties: option } }],
          },
        },
      },
    });
    validate(config);
    expect(validate.errors).toBeNull();
    // An option without a default has to be optional.
    const required = Object.entries<unknown>(config.schema).filter(([, kind]) => !String(kind).endsWith('?'));
    expect(required.map(([name]) => name).filter((name) => !(name in config.options))).toEqual([]);
    expect(Object.keys(config.options).filter((name) => !(name in config.schema))).toEqual([]);
    expect(read(`${FOLDER}/run.js`)).toContain(`const INGRESS_PORT = ${config.ingress_port};`);
  });

  it('each option has a text, and becomes a setting that exists', () => {
    const { configuration } = parse(read(`${FOLDER}/translations/en.yaml`));
    expect(Object.keys(configuration).sort()).toEqual(Object.keys(config.schema).sort());
    for (const text of Object.values(configuration))
      expect(text).toEqual({ name: expect.any(String), description: expect.any(String) });
    for (const name of Object.values(SETTING_OF)) expect(VARIABLES).toHaveProperty(name);
    const options = {
      ...config.options,
      join_code: 'join-1',
      settings: [{ name: 'AGENT_PORT', value: '4041' }],
    };
    expect(settingsOf(options)).toEqual({ AGENT_JOIN_CODE: 'join-1', LOG_LEVEL: 'info', AGENT_PORT: '4041' });
    expect(declaredTunnels(options)).toBeNull();
    expect(declaredTunnels({ home_assistant_domain: 'home' })).toBe(
      '{"tunnels":[{"domain":"home","forwards_to":8123}]}',
    );
  });
});

it('the balena block names what it is and where it runs', () => {
  const block = parse(read('packaging/balena/balena.yml'));
  expect(block).toMatchObject({
    name: 'device-agent',
    type: 'sw.block',
    data: { defaultDeviceType: expect.any(String) },
  });
  expect(block.data.supportedDeviceTypes).toContain(block.data.defaultDeviceType);
});

describe('compose files', () => {
  const FILES = {
    'compose.yaml': ['device-agent'],
    'examples/gateway/compose.yaml': ['gateway'],
    'examples/cluster/compose.yaml': ['one', 'two', 'three'],
    'packaging/balena/docker-compose.yml': ['device-agent'],
  };

  it.each(Object.entries(FILES))('%s drops all privileges, has a read-only root and keeps its data', (path, names) => {
    const { services, volumes } = parse(read(path), { merge: true });
    for (const name of names) {
      expect(services[name]).toMatchObject({
        read_only: true,
        cap_drop: ['ALL'],
        volumes: [expect.stringMatching(/:\/data$/)],
      });
      expect(volumes).toHaveProperty(services[name].volumes[0].split(':')[0]);
      for (const setting of Object.keys(services[name].environment ?? {})) expect(VARIABLES).toHaveProperty(setting);
    }
  });

  it.each(Object.keys(FILES))('%s is understood by Compose', unless(NO_COMPOSE), (path) => {
    // With the .env that it requires.
    const file = join(temporaryFolder(), path);
    mkdirSync(dirname(file), { recursive: true });
    cpSync(path, file);
    writeFileSync(
      join(dirname(file), '.env'),
      'GATEWAY_DOMAIN=a.example.com\nPOSTGRES_PASSWORD=x\nGATEWAY_ENCRYPTION_KEY=y\n',
    );
    execFileSync('docker-compose', ['--file', file, 'config', '--quiet'], { cwd: dirname(file), stdio: 'pipe' });
  });
});
