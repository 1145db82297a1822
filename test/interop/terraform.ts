import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { issueCertificate } from '../support/certificates.ts';
import { programMissing } from '../support/requirements.ts';
import { until } from '../support/until.ts';
import type { Case, Client } from './client.ts';
import type { Lab } from './lab.ts';
import { type Ended, mustRun, run } from './program.ts';

/** Has an example that is tried, too. */
const PAGE = 'docs/terraform.md';
/** The API's address in the example. */
const DOCUMENTED_API = 'https://api.gateway.example.com';
const LOCK = '.terraform.lock.hcl';
const PROVIDER = `terraform {
  required_providers {
    ngrok = {
      source  = "ngrok/ngrok"
      version = "0.8.0"
    }
  }
}
`;

/** A resource as it is created and as it is updated; other resources that it needs come with both. */
interface Scenario {
  /** Address in the state, such as `ngrok_domain.it`. */
  address: string;
  note?: string;
  created: string;
  updated: string;
  beside?: string;
  /** Whether a certificate is issued for it. One that arrives with the answer to an update is a surprise to the provider. */
  isIssued?: boolean;
}

/** The configuration in the page for users. */
export function documentedExample(page: string): string {
  const [, example = ''] = /```hcl\n([\s\S]*?)```/.exec(page) ?? [];
  return example;
}

async function scenarios({ domain }: Lab): Promise<Scenario[]> {
  const ca = await issueCertificate({ subject: 'CN=A certificate authority', ca: true });
  const leaf = await issueCertificate({ subject: 'CN=uploaded.example.com', names: ['uploaded.example.com'] });
  const uploaded = heredoc('certificate_pem', leaf.certificatePem) + heredoc('private_key_pem', leaf.privateKeyPem);
  return [
    described('ngrok_api_key'),
    described('ngrok_credential', 'acl = ["bind:a.example.com"]', 'acl = ["bind:*.example.com"]'),
    described('ngrok_certificate_authority', heredoc('ca_pem', ca.certificatePem)),
    described('ngrok_tls_certificate', uploaded),
    described('ngrok_ip_policy'),
    {
      ...described('ngrok_ip_policy_rule', `${RULE}\ncidr = "192.0.2.0/24"`, `${RULE}\ncidr = "2001:db8::/32"`),
      beside: 'resource "ngrok_ip_policy" "other" {}',
    },
    { address: 'ngrok_service_user.it', created: 'name = "a"', updated: 'name = "b"\nactive = false' },
    { ...described('ngrok_domain', `domain = "app.${domain}"`), note: "below the gateway's domain" },
    { ...described('ngrok_domain', 'domain = "plain.example.com"'), note: 'without certificate' },
    {
      ...described('ngrok_domain', automatic('rsa'), automatic('ecdsa')),
      note: 'with an automatic certificate',
      isIssued: true,
    },
    {
      ...described('ngrok_domain', 'domain = "uploaded.example.com"\ncertificate_id = ngrok_tls_certificate.other.id'),
      note: 'with an uploaded certificate',
      beside: `resource "ngrok_tls_certificate" "other" {\n${uploaded}}`,
    },
    described('ngrok_vault', 'name = "a"', 'name = "b"'),
    {
      ...described('ngrok_secret', `${IN_VAULT}\nvalue = "first"`, `${IN_VAULT}\nvalue = "second"`),
      beside: 'resource "ngrok_vault" "other" {\nname = "other"\n}',
    },
    described('ngrok_tcp_address'),
    {
      ...described('ngrok_ip_restriction', 'type = "agent"\nip_policy_ids = [ngrok_ip_policy.other.id]'),
      beside: 'resource "ngrok_ip_policy" "other" {}',
    },
    described('ngrok_cloud_endpoint', ...denying(`https://cloud.${domain}`)),
    {
      ...described('ngrok_cloud_endpoint', ...denying('tls://cloud.internal:8443', 'bindings = ["internal"]')),
      note: 'that is internal',
    },
    {
      ...described('ngrok_cloud_endpoint', ...denying(`http://cloud.${domain}`)),
      note: 'for HTTP',
    },
    {
      ...described('ngrok_cloud_endpoint', ...denying(`tls://cloud-tls.${domain}`)),
      note: 'for TLS',
    },
    {
      ...described('ngrok_cloud_endpoint', ...denying(`tcp://\${ngrok_tcp_address.other.addr}`)),
      note: 'for TCP',
      beside: 'resource "ngrok_tcp_address" "other" {}',
    },
  ];
}

const RULE = 'ip_policy_id = ngrok_ip_policy.other.id\naction = "allow"';

const IN_VAULT = 'name = "a"\nvault_id = ngrok_vault.other.id';

/** A cloud endpoint, before and after a change of its policy. */
function denying(url: string, more = ''): [created: string, updated: string] {
  const withRule = (name: string) => {
    const rule = `{ name = "${name}", actions = [{ type = "deny" }] }`;
    return `url = "${url}"\n${more}\ntraffic_policy = jsonencode({ on_tcp_connect = [${rule}] })`;
  };
  return [withRule('first'), withRule('second')];
}

/** A resource whose description and metadata change, and what else is given. */
function described(type: string, created = '', updated = created): Scenario {
  return {
    address: `${type}.it`,
    created: `description = "a"\nmetadata = "{}"\n${created}`,
    updated: `description = "b"\nmetadata = ""\n${updated}`,
  };
}

function automatic(keyType: string): string {
  return `domain = "automatic.example.com"
    certificate_management_policy = { authority = "letsencrypt", private_key_type = "${keyType}" }`;
}

function heredoc(name: string, text: string): string {
  return `${name} = <<-EOT\n${text.trimEnd()}\nEOT\n`;
}

/** Takes one resource through its life, up to the first step that fails. */
async function live(lab: Lab, folder: string, scenario: Scenario): Promise<Case[]> {
  const { address, note, created, updated, beside = '', isIssued = false } = scenario;
  const [type = '', name = ''] = address.split('.');
  const terraform = terraformIn(folder, lab);
  const configure = (body: string) =>
    writeFileSync(join(folder, 'resource.tf'), `${beside}\nresource "${type}" "${name}" {\n${body}\n}\n`);
  let id = '';
  return takeSteps(note === undefined ? type : `${type} ${note}`, {
    async create() {
      configure(created);
      const ended = await terraform(APPLY);
      id = await idOf(terraform, address);
      return ended;
    },
    async plan() {
      const planned = await terraform(PLAN);
      const certificate = () => stateOf(terraform, address, 'certificate_id');
      if (isIssued)
        await until(async () => (await terraform(REFRESH)).code === 0 && (await certificate()) !== '', 'a certificate');
      return planned;
    },
    async update() {
      configure(updated);
      const ended = await terraform(APPLY);
      const same = (await idOf(terraform, address)) === id;
      return same ? ended : { ...ended, code: 1, output: `${ended.output}\nreplaced rather than updated` };
    },
    'plan after the update': () => terraform(PLAN),
    async import() {
      await terraform(`state rm ${address}`);
      return terraform(`import -input=false ${address} ${id}`);
    },
    destroy: () => terraform(DESTROY),
  });
}

const APPLY = 'apply -auto-approve -input=false';
/** Succeeds only when there is nothing to change. */
const PLAN = 'plan -detailed-exitcode -input=false';
const REFRESH = 'apply -refresh-only -auto-approve -input=false';
const DESTROY = 'destroy -auto-approve -input=false';

type Terraform = (command: string) => Promise<Ended>;

function terraformIn(cwd: string, { env }: Pick<Lab, 'env'>): Terraform {
  return (command) =>
    run(['terraform', ...command.split(' '), '-no-color'], { cwd, env: { ...env, ...settings(cwd) } });
}

/** All folders share the provider that was fetched once. */
function settings(folder: string): Record<string, string> {
  return { TF_DATA_DIR: join(folder, '../.terraform'), TF_IN_AUTOMATION: '1', CHECKPOINT_DISABLE: '1' };
}

async function takeSteps(title: string, steps: Record<string, () => Promise<Ended>>): Promise<Case[]> {
  const cases: Case[] = [];
  for (const [step, take] of Object.entries(steps)) {
    const name = `${title}: ${step}`;
    const reached = cases.every(({ status }) => status === 'passed');
    const { code, output } = reached ? await take() : { code: 1, output: 'not reached' };
    cases.push(code === 0 ? { name, status: 'passed', output: '' } : { name, status: 'failed', output });
  }
  return cases;
}

/** The id of a resource in the state; empty when it is not there. */
const idOf = (terraform: Terraform, address: string) => stateOf(terraform, address, 'id');

async function stateOf(terraform: Terraform, address: string, member: 'id' | 'certificate_id'): Promise<string> {
  const { stdout } = await terraform('show -json');
  const state = JSON.parse(stdout) as {
    values?: { root_module: { resources: { address: string; values: { id: string; certificate_id?: string } }[] } };
  };
  return state.values?.root_module.resources.find((resource) => resource.address === address)?.values[member] ?? '';
}

function project(sources: string, name: string): string {
  const folder = join(sources, name);
  mkdirSync(folder);
  copyFileSync(join(sources, LOCK), join(folder, LOCK));
  return folder;
}

export const terraform: Client = {
  title: 'Terraform provider ngrok/ngrok 0.8.0',
  what: 'every resource that the gateway has: create, plan, update, plan, import, destroy; the example of the Terraform page',
  needs: '`terraform`, registry.terraform.io',
  missing: () => programMissing('terraform', 'version'),
  async fetch(sources) {
    writeFileSync(join(sources, 'provider.tf'), PROVIDER);
    await mustRun(['terraform', 'init', '-input=false', '-no-color'], { cwd: sources });
  },
  async run(lab, sources) {
    const cases: Case[] = [];
    for (const [index, scenario] of (await scenarios(lab)).entries()) {
      const folder = project(sources, String(index));
      writeFileSync(join(folder, 'provider.tf'), PROVIDER);
      cases.push(...(await live(lab, folder, scenario)));
    }
    const folder = project(sources, 'example');
    const example = documentedExample(readFileSync(PAGE, 'utf8'));
    writeFileSync(join(folder, 'main.tf'), example.replace(DOCUMENTED_API, lab.apiUrl));
    const terraform = terraformIn(folder, lab);
    const steps = { create: APPLY, plan: PLAN, destroy: DESTROY };
    const take = ([step, command]: [string, string]) => [step, () => terraform(command)] as const;
    cases.push(...(await takeSteps(`example of ${PAGE}`, Object.fromEntries(Object.entries(steps).map(take)))));
    return cases;
  },
  expected: {},
};
