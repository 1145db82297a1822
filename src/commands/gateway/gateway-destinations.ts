import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { emailTarget } from '../../gateway/offline/command-store.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { EventDestination, EventDestinationCreate } from '../../management/resources/event.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, show, table } from '../output.ts';
import { collected, createUsualRules, requireId } from './gateway-messages.ts';
import { withGateway } from './running-gateway.ts';

interface JsonOption {
  json?: boolean;
}

/** Prints where events and messages go. @throws {OperatorError} exit code 3 when the gateway does not run */
export async function listDestinations(settings: GatewayServerSettings, { json }: JsonOption): Promise<void> {
  const all = await withGateway(settings, (client) => collected(client.eventDestinations.all()));
  if (json) return void print(jsonText(all));
  if (all.length === 0) return void note(`No destinations. Add one with: ${ownCommand('gateway destinations add')}`);
  const rows = all.map(({ id, target, delivery, description }) => {
    const [kind, place] = placeOf(target);
    return [id, kind, place, delivery?.failing_since ? `failing: ${delivery.error}` : 'ok', description ?? ''];
  });
  print(table(['ID', 'KIND', 'SENDS TO', 'STATE', 'DESCRIPTION'], rows));
}

function placeOf(target: EventDestination['target']): [kind: string, place: string] {
  const [kind, shown] = Object.entries(target).find(([, value]) => value !== null) ?? ['unknown', {}];
  const { address, url, name, host } = shown as Partial<Record<string, unknown>>;
  return [kind, String(address ?? url ?? name ?? host ?? '-')];
}

/**
 * Sends a test message, and prints what the destination answered.
 *
 * @throws {OperatorError} exit code 4 for an unknown id, 1 when the destination does not accept it
 */
export async function testDestination(
  settings: GatewayServerSettings,
  id: string,
  { json }: JsonOption,
): Promise<void> {
  requireId(id, 'ed_', 'destination', 'gateway destinations');
  const result = await withGateway(settings, (client) => client.eventDestinations.test(id));
  if (json) print(jsonText(result));
  else if (result.accepted) print(`accepted: ${result.answer}`);
  if (!result.accepted) throw new OperatorError(`test message not accepted: ${result.answer}`, 1);
}

export interface DestinationChoice extends JsonOption {
  /** File with the secret; `-`: standard input. */
  secretFile?: string;
  smtp?: string;
  smtpFrom?: string;
  region?: string;
  usualRules?: boolean;
  description?: string;
}

type Target = EventDestinationCreate['target'];
interface Given extends DestinationChoice {
  /** What a destination is named by where that is no secret. */
  readonly to: string | undefined;
  readonly secret: string | undefined;
}

/** How each kind is made of what a command is told. */
const TARGETS: Readonly<Record<string, (given: Given) => Target>> = {
  email: ({ to, smtp, smtpFrom: from, secret: password }) => {
    if (smtp === undefined)
      throw new OperatorError('email: needs --smtp, such as --smtp smtps://user@mail.example.com', 2);
    const { kind: _, ...email } = emailTarget(required(to, 'an address'), { url: smtp, from, password });
    return { email };
  },
  ntfy: ({ to, secret: token }) => ({
    ntfy: {
      url: required(to, 'the URL of a topic, such as https://ntfy.sh/my-topic'),
      ...(token !== undefined && { token }),
    },
  }),
  slack: ({ to, secret }) => ({ slack: { url: secretOf(secret, to, 'the URL of an incoming webhook') } }),
  teams: ({ to, secret }) => ({ teams: { url: secretOf(secret, to, 'the URL of a workflow') } }),
  discord: ({ to, secret }) => ({ discord: { url: secretOf(secret, to, 'the URL of a webhook') } }),
  telegram: ({ to, secret }) => ({
    telegram: {
      chat_id: required(to, 'the number of a chat, or @ and a channel'),
      bot_token: secretOf(secret, undefined, 'the token of the bot'),
    },
  }),
  pagerduty: ({ to, secret, region }) => ({
    pagerduty: {
      routing_key: secretOf(secret, to, 'the integration key'),
      ...(region !== undefined && { region: region as 'us' | 'eu' }),
    },
  }),
  webhook: ({ to, secret }) => ({
    webhook: { url: required(to, 'an https:// URL'), ...(secret !== undefined && { signing_secret: secret }) },
  }),
};
const DESTINATION_KINDS = Object.keys(TARGETS);

function required(to: string | undefined, what: string): string {
  if (to !== undefined) return to;
  throw new OperatorError(`destination not added: name ${what} after the kind`, 2);
}

/** Commands with secrets stay in histories and lists of processes. */
function secretOf(secret: string | undefined, to: string | undefined, what: string): string {
  if (to !== undefined)
    throw new OperatorError(
      `destination not added: ${what} is a secret; write it into a file: --secret-file <file>`,
      2,
    );
  if (secret !== undefined) return secret;
  throw new OperatorError(`destination not added: needs --secret-file, a file with ${what}; -: standard input`, 2);
}

/**
 * Adds a destination, and the usual rules if they are wanted.
 *
 * @throws {OperatorError} exit code 2 when something is missing, 1 when the gateway refuses it
 */
export async function addDestination(
  settings: GatewayServerSettings,
  kind: string,
  to: string | undefined,
  options: DestinationChoice,
): Promise<void> {
  const { secretFile, description, usualRules, json } = options;
  const target = TARGETS[kind]?.({ ...options, to, secret: await secretIn(secretFile) });
  if (target === undefined)
    throw new OperatorError(`unknown kind of destination ${kind}: use one of ${DESTINATION_KINDS.join(', ')}`, 2);
  const destination = await withGateway(settings, (client) =>
    client.eventDestinations.create({ target, ...(description !== undefined && { description }) }),
  );
  const { id, target: shown } = destination;
  // Before anything else can fail: it is the only time that its secret is shown.
  if (json) print(jsonText(destination));
  else print(`${id} added`);
  const signingSecret = shown.webhook?.signing_secret;
  if (!json && signingSecret != null) print(`signing secret, shown once: ${signingSecret}`);
  const rules = usualRules ? await withGateway(settings, (client) => createUsualRules(client, id)) : [];
  if (json) return;
  for (const rule of rules) print(`${rule.id} added: ${rule.description}`);
  note(`Try it with: ${ownCommand(`gateway destinations test ${id}`)}`);
  if (!usualRules) note(`Rules say which messages it gets: ${ownCommand(`gateway rules usual ${id}`)}`);
}

async function secretIn(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined;
  try {
    const content = file === '-' ? await text(process.stdin) : await readFile(file, 'utf8');
    return content.replace(/\r?\n$/, '');
  } catch (error) {
    throw new OperatorError(`--secret-file: cannot be read: ${messageOf(error)}`, 2, { cause: error });
  }
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export async function removeDestination(
  settings: GatewayServerSettings,
  id: string,
  options: JsonOption,
): Promise<void> {
  requireId(id, 'ed_', 'destination', 'gateway destinations');
  await withGateway(settings, (client) => client.eventDestinations.delete(id));
  show({ removed: id }, options, () => `${id} removed`);
}
