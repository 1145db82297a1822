import { isCelList } from '@bufbuild/cel';
import { z } from 'zod';
import { type Cidr, parseAddress, parseCidr } from '../../lib/network/ip-address.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { cachedCidr } from '../cel/functions/network-functions.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { PolicyScope, Subject } from '../policy-subjects.ts';
import type { IpRule } from '../ports.ts';
import { type PreparedAction, policyError } from '../steps.ts';
import type { Template } from '../templates.ts';
import { CLOSE } from './deny.ts';

const MAX_RANGES = 1000;

const RestrictIpsConfig = z.strictObject({
  allow: z.array(z.string()).max(MAX_RANGES).optional(),
  deny: z.array(z.string()).max(MAX_RANGES).optional(),
  ip_policies: z.array(z.string()).max(100).optional(),
  enforce: z.boolean().optional(),
});

const REFUSED = policyError(403, 'ERR_NGROK_3203', 'Your IP address is not allowed to access this endpoint.');

/** Admits only clients with specific addresses. It checks the address of the connection, never a header. */
export function restrictIps(config: unknown, context: ActionContext): PreparedAction {
  const { allow = [], deny = [], ip_policies: policies = [], enforce = true } = parseConfig(RestrictIpsConfig, config);
  if (policies.length > 0 && context.ports.ipPolicies(policies) === null) {
    throw refusal('ERR_NGROK_2216', 'names an unknown IP policy', 'config.ip_policies');
  }
  if (allow.length === 0 && policies.length === 0) context.warn('config.allow: is empty, so no client is allowed');
  const allowed = ranges(allow, 'config.allow', context);
  const denied = ranges(deny, 'config.deny', context);
  const pooled = pooledRanges(policies, context);

  const isRefused = (subject: Subject) => {
    const address = parseAddress(subject.connection.clientIp);
    const find = (list: readonly Cidr[]) => (address ? list.find((range) => range.contains(address)) : undefined);
    const pool = pooled();
    const denying = find(denied(subject)) ?? find(pool.denied);
    const allowing = denying ? undefined : (find(allowed(subject)) ?? find(pool.allowed));
    context.record(subject, 'restrict_ips', {
      action: allowing ? 'allow' : 'deny',
      matched_cidr: (denying ?? allowing)?.text ?? '',
      error: allowing ? NO_ERROR : { code: REFUSED.code, message: REFUSED.message },
    });
    return enforce && allowing === undefined;
  };
  const onHttp = (subject: Subject) => (isRefused(subject) ? REFUSED : undefined);
  return {
    ends: false,
    on_tcp_connect: () => (connect) => (isRefused(connect) ? CLOSE : undefined),
    on_http_request: () => onHttp,
    on_http_response: () => onHttp,
  };
}

export const NO_ERROR = { code: '', message: '' };

function ranges(list: readonly string[], field: string, context: ActionContext): (subject: Subject) => readonly Cidr[] {
  const fixed: Cidr[] = [];
  const templates: Template[] = [];
  for (const [at, text] of list.entries()) {
    const template = context.template(text, `${field}[${at}]`);
    if (template.constant === null) {
      templates.push(template);
      continue;
    }
    const range = parseCidr(template.constant);
    if (range === null) throw refusal('ERR_NGROK_2217', `${text} is not an address range`, `${field}[${at}]`);
    fixed.push(range);
  }
  if (templates.length === 0) return () => fixed;
  return (subject) => {
    const scope = context.scopeOf(subject);
    return [...fixed, ...templates.flatMap((template) => rangesOf(template, scope))];
  };
}

function rangesOf(template: Template, scope: PolicyScope): Cidr[] {
  const value = template.value(scope);
  const texts = isCelList(value) ? [...value] : [value];
  return texts.map((text) => {
    const range = typeof text === 'string' ? cachedCidr(text) : null;
    if (range === null) throw new PolicyFailure('ERR_NGROK_2217', 'an expression did not return an address range');
    return range;
  });
}

/** The ranges of IP policies, parsed again only after a change. */
function pooledRanges(ids: readonly string[], { ports }: ActionContext) {
  let rules: readonly IpRule[] = [];
  let parsed: { allowed: Cidr[]; denied: Cidr[] } = { allowed: [], denied: [] };
  if (ids.length === 0) return () => parsed;
  return () => {
    const now = ports.ipPolicies(ids);
    if (now === null) throw new PolicyFailure('ERR_NGROK_2216', 'an IP policy was deleted');
    if (now !== rules) {
      rules = now;
      const of = (action: IpRule['action']) =>
        now.flatMap((rule) => (rule.action === action ? (parseCidr(rule.cidr) ?? []) : []));
      parsed = { allowed: of('allow'), denied: of('deny') };
    }
    return parsed;
  };
}
