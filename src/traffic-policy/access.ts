import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { traitsOf } from './action-types.ts';
import { isLegacy, PolicyInput, type RulesByPhase } from './document.ts';

/**
 * How a policy lets clients in: `or-link`, with a share link instead of what else it asks for; `policy`, as rules with
 * expressions decide.
 */
export const ACCESS_WAYS = [
  'everyone',
  'addresses',
  'certificate',
  'password',
  'sign-in',
  'token',
  'link',
  'or-link',
  'policy',
] as const;
export type AccessWay = (typeof ACCESS_WAYS)[number];

/** Which people of the gateway a policy lets sign in. */
export interface AdmittedPeople {
  /** Whether it has no lists. */
  readonly everyone: boolean;
  /** Emails in lower case. */
  readonly emails: string[];
  readonly groups: string[];
}

/** What an owner can choose in place of the present ways; restrictions of addresses stay. */
export const ACCESS_CHOICES = ['everyone', 'password', 'sign-in', 'link', 'certificate'] as const;
export type AccessChoice = (typeof ACCESS_CHOICES)[number];

interface Action {
  readonly type: string;
  readonly config?: unknown;
}

interface Rule {
  readonly name?: string | null | undefined;
  readonly expressions?: readonly string[] | null | undefined;
  readonly actions: readonly Action[];
}

/** A policy in either shape. */
type Policy = Readonly<Record<string, unknown>> & {
  readonly enabled?: boolean | undefined;
  readonly inbound?: readonly Rule[] | undefined;
  readonly on_tcp_connect?: readonly Rule[] | undefined;
  readonly on_http_request?: readonly Rule[] | undefined;
};

/** 128 bits. */
const PASSWORD_BYTES = 16;

const SIGN_IN = 'gateway-sign-in';
const Names = z.array(z.string().min(1).max(254)).max(1000);
const NamesIfAny = Names.min(1).optional();
/** Of the action gateway-sign-in. */
export const ADMISSION_LISTS = { people: NamesIfAny, groups: NamesIfAny };

const SHARE_LINKS = 'gateway-share-links';
/** The condition of rules for clients whom no share link lets in. */
const WITHOUT_LINK = '!actions.ngrok.gateway_share_links.let_in';

/** Ways by the action that checks them, for every request. */
const CHECKED: Readonly<Record<string, AccessWay>> = {
  'basic-auth': 'password',
  [SIGN_IN]: 'sign-in',
  'jwt-validation': 'token',
  oauth: 'sign-in',
  oidc: 'sign-in',
  'openid-connect': 'sign-in',
  saml: 'sign-in',
};
const REJECTING: ReadonlySet<string> = new Set(['close-connection', 'deny', 'forward-internal', 'verify-webhook']);

/** @returns the ways in the order of {@link ACCESS_WAYS}, at least one */
export function accessOf(rules: RulesByPhase<Rule>): AccessWay[] {
  const found = new Set<AccessWay>();
  for (const rule of [...(rules.on_tcp_connect ?? []), ...(rules.on_http_request ?? [])]) {
    const isForSome = isConditional(rule);
    for (const action of rule.actions) {
      const way = wayOf(action);
      if (way === 'link' || way === 'or-link') found.add(isForSome ? 'or-link' : way);
      else if (way !== null) found.add(isForSome ? 'policy' : way);
    }
  }
  if (found.size === 0) found.add('everyone');
  return ACCESS_WAYS.filter((way) => found.has(way));
}

/** Whom a policy's action gateway-sign-in lets in, of which there is one at most; null without it. */
export function admissionOf({ on_http_request: rules = [] }: RulesByPhase<Rule>): AdmittedPeople | null {
  const action = rules.flatMap(({ actions }) => actions).find(({ type }) => type === SIGN_IN);
  return action === undefined ? null : admissionBy(action.config as AdmissionLists | undefined);
}

/** The same of a policy that was not checked yet; also null when its lists are wrong. */
export function admissionIn(policy: Policy): AdmittedPeople | null {
  const action = partsOf(policy)
    .requests.flatMap(({ actions }) => actions)
    .find(({ type }) => type === SIGN_IN);
  const lists = z.object(ADMISSION_LISTS).safeParse(action?.config ?? {});
  return action !== undefined && lists.success ? admissionBy(lists.data) : null;
}

interface AdmissionLists {
  readonly people?: readonly string[] | undefined;
  readonly groups?: readonly string[] | undefined;
}

/** @param lists of the action's configuration */
export function admissionBy({ people, groups }: AdmissionLists = {}): AdmittedPeople {
  return {
    everyone: people === undefined && groups === undefined,
    emails: people?.map((email) => email.toLowerCase()) ?? [],
    groups: [...(groups ?? [])],
  };
}

/** @returns who comes in: people who are on either of its lists */
export function admits({ everyone, ...lists }: AdmittedPeople): (person: Admitted) => boolean {
  const [emails, names] = [new Set(lists.emails), new Set(lists.groups)];
  return ({ email, groups: own = [] }) => everyone || emails.has(email) || own.some((group) => names.has(group));
}

/** The same for one person, whose endpoints are looked up: sets of all lists would take longer. */
export function isAdmitted(
  { everyone, emails, groups }: AdmittedPeople,
  { email, groups: own = [] }: Admitted,
): boolean {
  return everyone || emails.includes(email) || own.some((group) => groups.includes(group));
}

interface Admitted {
  readonly email: string;
  readonly groups?: readonly string[];
}

/** Whether share links let somebody in. */
export function takesShareLinks(ways: readonly string[]): boolean {
  return ways.includes('link') || ways.includes('or-link');
}

/** The same policy, which also lets clients with a share link in; unchanged when it does so already. */
export function withShareLinks(policy: Policy): Policy {
  const { base, phase, requests } = partsOf(policy);
  if (requests.some(({ actions }) => actions.some(({ type }) => type === SHARE_LINKS))) return policy;
  const hasCheck = requests.some((rule) => !isConditional(rule) && rule.actions.some(isCheck));
  const share = { type: SHARE_LINKS, ...(hasCheck && { config: { enforce: false } }) };
  const rest = requests.flatMap((rule) => (isConditional(rule) ? [rule] : checkedWithoutLink(rule)));
  return { ...base, [phase]: [{ actions: [share] }, ...rest] };
}

/** The same policy, where no share link lets anybody in: what it asks for besides is for all. */
export function withoutShareLinks(policy: Policy): Policy {
  const { base, phase, requests } = partsOf(policy);
  const rest = requests.flatMap(({ expressions, ...rule }) => {
    const actions = rule.actions.filter(({ type }) => type !== SHARE_LINKS);
    const others = expressions?.filter((expression) => expression !== WITHOUT_LINK) ?? [];
    return actions.length === 0 ? [] : [{ ...rule, ...(others.length > 0 && { expressions: others }), actions }];
  });
  return { ...base, [phase]: rest };
}

/**
 * The same policy with another way for clients to come in: an ordinary one, with the new rule first. Rules with expressions of
 * their own stay as they are, and so do all other actions.
 *
 * @param password for `password`
 */
export function withAccess(policy: Policy, choice: AccessChoice, password: string): Policy {
  const { base, phase, requests } = partsOf(policy);
  const connects = base.on_tcp_connect?.flatMap(withoutChecks) ?? [];
  const rest = requests.flatMap(withoutChecks);
  const { on_tcp_connect: _, ...others } = base;
  const result = { ...others, ...(connects.length > 0 && { on_tcp_connect: connects }), [phase]: rest };
  const action = actionFor(choice, password);
  if (action === null) return result;
  // In the older shape, the agent finds the phase of the action.
  const own = choice === 'certificate' && phase === 'on_http_request' ? 'on_tcp_connect' : phase;
  const after = own === phase ? rest : connects;
  return { ...result, [own]: [{ actions: [action] }, ...after] };
}

/** Who may come in, and whether share links let people in besides; a choice of null keeps the way. */
export const ACCESS_REQUEST = {
  choice: z.enum(ACCESS_CHOICES).nullable(),
  links: z.boolean(),
  /** Which people of the gateway may sign in; two empty lists: all. Left out: nothing changes. */
  admitted: z.strictObject({ people: Names, groups: Names }).optional(),
};
export type AccessRequest = z.output<z.ZodObject<typeof ACCESS_REQUEST>>;

/**
 * The same policy as its owner wants it.
 *
 * @returns also the password in it, if a new one was made
 */
export function withChosenAccess(policy: Policy, { choice, links, admitted }: AccessRequest) {
  const password = choice === 'password' ? randomBytes(PASSWORD_BYTES).toString('base64url') : null;
  const chosen = choice === null ? withoutShareLinks(policy) : withAccess(policy, choice, password ?? '');
  const listed = admitted === undefined ? chosen : withAdmitted(chosen, admitted);
  return { policy: PolicyInput.parse(links ? withShareLinks(listed) : listed), password };
}

/** The same policy, whose gateway-sign-in has these lists; what else is in its configuration stays. */
function withAdmitted(policy: Policy, { people, groups }: NonNullable<AccessRequest['admitted']>): Policy {
  const { base, phase, requests } = partsOf(policy);
  const lists = { ...(people.length > 0 && { people }), ...(groups.length > 0 && { groups }) };
  const listed = ({ config, ...action }: Action): Action => {
    const { people: _, groups: __, ...rest } = (config ?? {}) as Readonly<Record<string, unknown>>;
    const next = { ...lists, ...rest };
    return { ...action, ...(Object.keys(next).length > 0 && { config: next }) };
  };
  const rules = requests.map(({ actions, ...rule }) => ({
    ...rule,
    actions: actions.map((action) => (action.type === SIGN_IN ? listed(action) : action)),
  }));
  return { ...base, [phase]: rules };
}

/** Whether this gateway has what a choice needs. */
export function isSupported(choice: AccessChoice): boolean {
  return choice !== 'sign-in' || traitsOf(SIGN_IN) !== null;
}

function actionFor(choice: AccessChoice, password: string): Action | null {
  switch (choice) {
    case 'everyone':
      return null;
    case 'password':
      return { type: 'basic-auth', config: { credentials: [`guest:${password}`] } };
    case 'sign-in':
      return { type: SIGN_IN };
    case 'link':
      return { type: SHARE_LINKS };
    case 'certificate':
      return {
        type: 'terminate-tls',
        config: { mutual_tls_certificate_authorities: ['-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n'] },
      };
  }
}

function partsOf(policy: Policy) {
  const base: Policy = policy.enabled === false ? {} : policy;
  const phase = isLegacy(base) ? ('inbound' as const) : ('on_http_request' as const);
  return { base, phase, requests: base[phase] ?? [] };
}

/** Null: the action lets everyone pass. */
function wayOf({ type, config }: Action): AccessWay | null {
  const { enforce, ...rest } = (config ?? {}) as Readonly<Record<string, unknown>>;
  if (type === SHARE_LINKS) return enforce === false ? 'or-link' : 'link';
  if (type === 'terminate-tls') return asksForCertificate(rest) ? 'certificate' : null;
  if (enforce === false) return null;
  if (type === 'restrict-ips') return 'addresses';
  return CHECKED[type] ?? (REJECTING.has(type) ? 'policy' : null);
}

function asksForCertificate(config: Readonly<Record<string, unknown>>): boolean {
  const { mutual_tls_certificate_authorities: authorities = [], mutual_tls_verification_strategy: strategy } = config;
  return strategy !== 'request' && [authorities].flat().length > 0;
}

/** Whether a rule is for some requests only; those without a share link count as all. */
function isConditional({ expressions }: Rule): boolean {
  return (expressions ?? []).some((expression) => expression !== WITHOUT_LINK);
}

function isCheck(action: Action): boolean {
  const way = wayOf(action);
  return way !== null && way !== 'addresses' && way !== 'certificate' && way !== 'policy';
}

/** The rule, in parts: those that check clients are for clients without a share link. */
function checkedWithoutLink(rule: Rule): Rule[] {
  const parts: { actions: Action[]; expressions?: string[] }[] = [];
  for (const action of rule.actions) {
    const last = parts.at(-1);
    const isForAll = !isCheck(action);
    if (last !== undefined && (last.expressions === undefined) === isForAll) last.actions.push(action);
    else parts.push({ ...(!isForAll && { expressions: [WITHOUT_LINK] }), actions: [action] });
  }
  return parts.map(({ expressions, actions }) => ({
    ...(rule.name && { name: rule.name }),
    ...(expressions && { expressions }),
    actions,
  }));
}

/** The rule without what checks clients; empty when nothing is left of it. */
function withoutChecks(rule: Rule): Rule[] {
  if (isConditional(rule)) return [rule];
  const actions = rule.actions.flatMap((action) => {
    if (action.type === 'terminate-tls') return withoutAuthorities(action);
    return isCheck(action) || CHECKED[action.type] !== undefined || action.type === SHARE_LINKS ? [] : [action];
  });
  return actions.length === 0 ? [] : [{ ...rule, actions }];
}

function withoutAuthorities({ config, ...action }: Action): Action[] {
  const {
    mutual_tls_certificate_authorities: _,
    mutual_tls_verification_strategy: __,
    ...rest
  } = (config ?? {}) as Readonly<Record<string, unknown>>;
  return Object.keys(rest).length === 0 ? [] : [{ ...action, config: rest }];
}
