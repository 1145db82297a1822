import {
  isNode,
  isScalar,
  Lexer,
  type LineCounter,
  Parser,
  parseDocument,
  visit,
  YAMLParseError,
  type Document as YamlDocument,
} from 'yaml';
import { z } from 'zod';
import { messageOf } from '../lib/errors.ts';
import { parseJson } from '../lib/json-text.ts';
import { formatPath, validationMessage } from '../lib/validation-messages.ts';
import type { PrepareAction } from './action-context.ts';
import { isLegacy, MIXED_SHAPES, PHASES } from './document.ts';
import { type PolicyProblem, PolicyRefused, refusal } from './policy-errors.ts';

const MAX_BYTES = 64 * 1024;
const MAX_NESTING = 40;

// ngrok documents no limits; these are far above every policy in its documentation.
const MAX_RULES = 100;
const MAX_EXPRESSIONS = 20;
const MAX_ACTIONS = 20;

const Action = z.strictObject({ type: z.string(), config: z.unknown().optional() });
export interface RawAction extends z.infer<typeof Action> {
  /** Set for actions that the gateway adds itself; no document can name them. */
  readonly prepare?: PrepareAction;
}

const Rule = z.strictObject({
  name: z.string().max(1024).nullish(),
  expressions: z.array(z.string()).max(MAX_EXPRESSIONS).nullish(),
  actions: z.array(Action).min(1, 'needs at least one action').max(MAX_ACTIONS),
});

export interface RawRule {
  readonly place: string;
  /** Its author's name for it; omitted without one. */
  readonly name?: string;
  readonly expressions: readonly string[];
  readonly actions: readonly RawAction[];
}

const RULE_LISTS = ['inbound', 'outbound', ...PHASES] as const;

const Rules = z.array(Rule).max(MAX_RULES).nullish();

const Document = z
  .strictObject({
    enabled: z.boolean().optional(),
    inbound: Rules,
    outbound: Rules,
    on_tcp_connect: Rules,
    on_http_request: Rules,
    on_http_response: Rules,
    on_event_stream_message: Rules,
  })
  .refine((document) => !(isLegacy(document) && PHASES.some((phase) => phase in document)), MIXED_SHAPES);

export type RawPolicy = { enabled?: boolean } & { [list in (typeof RULE_LISTS)[number]]?: RawRule[] };

/** The last parsed policy: agents bind hundreds of endpoints with the same text. */
let latest: { text: string; policy: RawPolicy } | null = null;

/**
 * @param text in the current or the legacy shape, the latter also in the spelling of the Rust SDK
 * @throws {PolicyRefused} with all problems and their places
 */
export function parsePolicyText(text: string): RawPolicy {
  if (latest?.text !== text) latest = { text, policy: readPolicyText(text) };
  return latest.policy;
}

function readPolicyText(text: string): RawPolicy {
  if (Buffer.byteLength(text) > MAX_BYTES) {
    throw refusal('ERR_NGROK_2221', `the policy is longer than ${MAX_BYTES} bytes`);
  }
  const parsed = Document.safeParse(withCurrentNames(policyValue(text)), { error: validationMessage });
  if (!parsed.success) throw new PolicyRefused(parsed.error.issues.map(problemOf));
  const { enabled, ...lists } = parsed.data;
  const policy: RawPolicy = {};
  if (enabled !== undefined) policy.enabled = enabled;
  for (const list of RULE_LISTS) {
    const rules = lists[list];
    if (rules) policy[list] = rules.map((rule, at) => rawRule(rule, `${list}[${at}]`));
  }
  return policy;
}

function rawRule({ name, expressions, actions }: z.infer<typeof Rule>, place: string): RawRule {
  const named = name ? { name } : {};
  return { place, ...named, expressions: expressions ?? [], actions: actions.map(withCurrentConfig) };
}

/** A policy as its text has it. @throws {PolicyRefused} when that is neither JSON nor YAML, or not a map */
export function policyValue(text: string): object {
  let value: unknown;
  try {
    value = text.trimStart().startsWith('{') ? parseJsonOrYaml(text) : parseYaml(text);
  } catch (error) {
    if (error instanceof PolicyRefused) throw error;
    // A quotation may contain a password, and refusals are logged.
    const problem = messageOf(error).replace(/"(?:[^"\\]|\\.)*"/g, '"…"');
    throw refusal('ERR_NGROK_2236', `the policy is neither JSON nor YAML: ${problem}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw refusal('ERR_NGROK_2236', 'the policy is not a map of phases');
  }
  if (isDeep(value, MAX_NESTING)) throw tooDeep();
  return value;
}

/** The core schema has only values of JSON, for example no timestamps. Keys are compared in {@link readYaml}. */
const YAML_OPTIONS = { schema: 'core', logLevel: 'error', prettyErrors: false, uniqueKeys: false } as const;
/** Aliases in a text, and copies that they may make of one value: they multiply. */
export const MAX_ALIASES = 20;
/** The library takes up to 20 ms for as many, and time that grows with the square for some. JSON has no such limit. */
const MAX_TOKENS = 4_000;

function parseYaml(text: string): unknown {
  const document = readYaml(text);
  const [error] = document.errors;
  if (error) throw error;
  return document.toJS({ maxAliasCount: MAX_ALIASES });
}

/**
 * Before the library's parser sees it, text is refused that costs it much: it goes as deep as the text, and V8 can end the
 * process when the stack is used up; it looks for an alias's anchor, and for a key among the others, one by one.
 *
 * @returns the document with the errors of its syntax
 * @throws {PolicyRefused} for text that is nested too deeply, or has too many tokens or aliases
 */
export function readYaml(text: string, lineCounter?: LineCounter): YamlDocument.Parsed {
  refuseCostlyYaml(text);
  // Each level takes at least one of these.
  const levels = text.match(/[[{]|[-?:](?=\s|$)/g)?.length ?? 0;
  if (levels > MAX_NESTING && isDeepYaml(text)) throw tooDeep();
  const document = withoutStacks(() => parseDocument(text, { ...YAML_OPTIONS, ...(lineCounter && { lineCounter }) }));
  if (document.errors.length === 0) findDuplicates(document);
  return document;
}

/** The library makes an error for each wrong token: capturing their stacks would take most of the time. */
function withoutStacks<T>(work: () => T): T {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return work();
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Counts what the library's lexer finds, which takes linear time. */
function refuseCostlyYaml(text: string): void {
  let [tokens, aliases, last] = [0, 0, ''];
  for (const token of new Lexer().lex(text)) {
    // After this mark comes the text of a scalar, whose lines count.
    const isText = last === '\u001f';
    last = token;
    if (isText) tokens += token.split('\n').length;
    else if (token.trim() !== '') tokens++;
    if (!isText && token.startsWith('*')) aliases++;
    if (aliases > MAX_ALIASES)
      throw refusal('ERR_NGROK_2236', `the policy has more than ${MAX_ALIASES} aliases; write the values out`);
    if (tokens > MAX_TOKENS) {
      throw refusal(
        'ERR_NGROK_2236',
        `the policy has more than ${MAX_TOKENS} parts of YAML; send it as JSON, or shorten it`,
      );
    }
  }
}

function findDuplicates(document: YamlDocument.Parsed): void {
  visit(document, {
    Map: (_key, { items }) => {
      const keys = new Set<unknown>();
      for (const { key } of items) {
        const name = isScalar(key) ? key.value : key;
        if (keys.has(name)) {
          const [from = 0, to = from] = (isNode(key) && key.range) || [];
          document.errors.push(new YAMLParseError([from, to], 'DUPLICATE_KEY', 'Map keys must be unique'));
          return visit.BREAK;
        }
        keys.add(name);
      }
      return undefined;
    },
  });
}

/** The library's parser builds a tree of tokens without recursion. */
function isDeepYaml(text: string): boolean {
  for (const document of new Parser().parse(text)) if (isDeep(document, 4 * MAX_NESTING)) return true;
  return false;
}

function tooDeep(): PolicyRefused {
  return refusal('ERR_NGROK_2250', `the policy is nested more than ${MAX_NESTING} deep`);
}

/** YAML also allows braces, with unquoted keys; but for JSON, the JSON parser has the better errors. */
function parseJsonOrYaml(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    rejectDuplicateNames(text);
    return value;
  } catch (error) {
    if (error instanceof PolicyRefused) throw error;
    try {
      return parseYaml(text);
    } catch (error) {
      if (error instanceof PolicyRefused) throw error;
      // The message of JSON.parse would quote the text around the error.
      return parseJson(text);
    }
  }
}

/**
 * JSON.parse keeps the last of two equal names and would silently drop the rules of the first. YAML rejects them.
 *
 * @throws {PolicyRefused} for the first one
 */
function rejectDuplicateNames(text: string): void {
  const open: (Set<string> | null)[] = [];
  let before = '';
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]/g)) {
    const names = open.at(-1);
    if (token === '{') open.push(new Set());
    else if (token === '[') open.push(null);
    else if (token === '}' || token === ']') open.pop();
    else if (names && token.startsWith('"') && before !== ':') {
      const name: string = JSON.parse(token);
      if (names.has(name))
        throw refusal('ERR_NGROK_2236', `${JSON.stringify(name.slice(0, 100))} occurs twice in one map`);
      names.add(name);
    }
    before = token;
  }
}

/** Goes level by level: the nesting of a text can exceed the stack. */
function isDeep(value: object, limit: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > limit) return true;
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []));
  }
  return false;
}

/** The Rust SDK capitalizes the names of a typed legacy policy, except inside config. */
const LEGACY_NAMES = new Map([
  ['Inbound', 'inbound'],
  ['Outbound', 'outbound'],
  ['Enabled', 'enabled'],
  ['Name', 'name'],
  ['Expressions', 'expressions'],
  ['Actions', 'actions'],
  ['Type', 'type'],
  ['Config', 'config'],
]);

function withCurrentNames(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withCurrentNames);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => {
      const name = LEGACY_NAMES.get(key) ?? key;
      return [name, name === 'config' ? member : withCurrentNames(member)];
    }),
  );
}

/** Renames legacy members of custom-response. An old name next to the current one stays, and is rejected as unknown. */
function withCurrentConfig(action: RawAction): RawAction {
  if (action.type !== 'custom-response' || !isMap(action.config)) return action;
  const { content, content_type: type, ...config } = action.config;
  if (content !== undefined) config[config.body === undefined ? 'body' : 'content'] = content;
  const { headers = {} } = config;
  const isFree = isMap(headers) && !Object.keys(headers).some((name) => name.toLowerCase() === 'content-type');
  if (type !== undefined && isFree) config.headers = { ...headers, 'content-type': type };
  else if (type !== undefined) config.content_type = type;
  return { type: action.type, config };
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function problemOf(issue: z.core.$ZodIssue): PolicyProblem {
  return { code: codeOf(issue), place: formatPath(issue.path), message: issue.message };
}

function codeOf(issue: z.core.$ZodIssue): string {
  const last = issue.path.at(-1);
  if (issue.code === 'too_small' && last === 'actions') return 'ERR_NGROK_2206';
  if (issue.code !== 'too_big') return 'ERR_NGROK_2236';
  if (last === 'on_event_stream_message') return 'ERR_NGROK_2202';
  if (last === 'actions') return 'ERR_NGROK_2255';
  return last === 'name' ? 'ERR_NGROK_2221' : last === 'expressions' ? 'ERR_NGROK_2265' : 'ERR_NGROK_2264';
}
