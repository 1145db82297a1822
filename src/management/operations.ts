import type { z } from 'zod';
import { applicationSessions, applicationUsers } from './resources/application-session.ts';
import { auditEvents } from './resources/audit-event.ts';
import { httpResponseBackends, tunnelGroupBackends } from './resources/backend.ts';
import { botUsers, serviceUsers } from './resources/bot-user.ts';
import { BulkActionCreate, BulkCount, BulkCounted, bulkActions } from './resources/bulk-action.ts';
import { certificateAuthorities, tlsCertificates } from './resources/certificate.ts';
import { ConditionRecord, ConditionSilence, conditionHistory } from './resources/condition.ts';
import { apiKeys, credentials } from './resources/credential.ts';
import { devices } from './resources/device.ts';
import { endpoints } from './resources/endpoint.ts';
import { enrolmentKeys } from './resources/enrolment.ts';
import {
  DestinationTest,
  EventSource,
  EventSourceCreate,
  EventSourceList,
  EventSourceUpdate,
  eventDestinations,
  eventSubscriptions,
  RefusedEvent,
  RefusedEventChoice,
  refusedEvents,
} from './resources/event.ts';
import { GatewayHistoryQuery, HistoryAnswer, HistoryQuery, TopRequests } from './resources/history.ts';
import { ipPolicies, ipPolicyRules, ipRestrictions } from './resources/ip-policy.ts';
import { messageRules } from './resources/message-rule.ts';
import { PersonLink, people } from './resources/person.ts';
import { reservedAddrs } from './resources/reserved-addr.ts';
import { DnsCheck, endpointConfigurations, reservedDomains } from './resources/reserved-domain.ts';
import type { ReadableResource, Resource } from './resources/resource.ts';
import { ShareLinkCreate, shareLinks } from './resources/share-link.ts';
import { type TlsEdgeModuleName, tlsEdgeModules, tlsEdges } from './resources/tls-edge.ts';
import { tunnelSessions, tunnels } from './resources/tunnel.ts';
import { secrets, vaults } from './resources/vault.ts';

/** An operation of the API, shared by server, client and OpenAPI document. */
export interface Operation<
  Body extends z.ZodType | null = z.ZodType | null,
  Answer extends z.ZodType | null = z.ZodType | null,
  Path extends string = string,
  ListKey extends string | null = string | null,
> {
  method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** `{id}` stands for the resource's id, `{type}` for the type of an event source below it. */
  path: Path;
  /** The prefix of the resource's ids. */
  idPrefix: string;
  summary: string;
  /** The request's body; null: none. */
  body: Body;
  /** Schema of the response; null: 204 without a body. For a list: one item. */
  answer: Answer;
  status: 200 | 201 | 204;
  /** The response's member with the items; null: not a list. */
  listKey: ListKey;
  /** The prefix of the items' ids, when a list belongs to one resource; left out: the same. */
  itemPrefix?: string;
  /** Further query parameters of a list. */
  filters?: z.ZodObject;
  /** Query parameters of an operation that is no list. */
  query?: z.ZodObject;
  /** The member of the response with rows, which clients that accept `text/csv` get; left out: JSON only. */
  csv?: string;
  /** For the client: the only member of the body that its method takes; null: none, it sends `{}`. Left out: the body. */
  takes?: string | null;
  /** For the client: the member of the response that its method returns. Left out: the response. */
  returns?: string;
  /** What a list is of all of. */
  resource?: ReadableResource;
}

/** Where an operation's path begins, and the ids below it. */
type Collection = Pick<ReadableResource, 'path' | 'idPrefix'>;

/** A path that ends like this. */
type Below<End extends string> = `${string}${End}`;

function get<End extends string, A extends z.ZodType>(
  of: Collection,
  below: End,
  summary: string,
  answer: A,
): Operation<null, A, Below<End>, null> {
  return { method: 'GET', ...at(of, below), summary, body: null, answer, status: 200, listKey: null };
}

function change<End extends string, B extends z.ZodType | null, A extends z.ZodType>(
  method: 'POST' | 'PATCH' | 'PUT',
  of: Collection,
  below: End,
  summary: string,
  body: B,
  answer: A,
): Operation<B, A, Below<End>, null> {
  return { method, ...at(of, below), summary, body, answer, status: method === 'POST' ? 201 : 200, listKey: null };
}

function remove<End extends string>(
  of: Collection,
  below: End,
  summary: string,
): Operation<null, null, Below<End>, null> {
  return { method: 'DELETE', ...at(of, below), summary, body: null, answer: null, status: 204, listKey: null };
}

function at<End extends string>({ path, idPrefix }: Collection, below: End): { path: Below<End>; idPrefix: string } {
  return { path: `${path}${below}`, idPrefix };
}

/** A list of a resource's own items, or below a resource one of `items`. */
function listOf<End extends string, A extends z.ZodType>(
  of: Collection,
  below: End,
  summary: string,
  answer: A,
  { listKey, idPrefix }: Pick<ReadableResource, 'listKey' | 'idPrefix'>,
): Operation<null, A, Below<End>, string> {
  return { ...get(of, below, summary, answer), listKey, ...(idPrefix !== of.idPrefix && { itemPrefix: idPrefix }) };
}

type FiltersOf<R> = R extends { filters: infer Filters extends z.ZodObject } ? { filters: Filters } : object;

/** The operations of a read-only resource. */
function readable<R extends ReadableResource>(resource: R) {
  const { name } = resource;
  const answer: R['answer'] = resource.answer;
  const list = {
    ...listOf(resource, '', `List every ${name}, newest first`, answer, resource),
    resource,
    ...((resource.filters ? { filters: resource.filters } : {}) as FiltersOf<R>),
  };
  return { get: get(resource, '/{id}', `Get one ${name}`, answer), list };
}

/** The five operations of a resource. */
function writable<R extends Resource>(resource: R) {
  const { name } = resource;
  const [sent, changes, answer]: [R['create'], R['update'], R['answer']] = [
    resource.create,
    resource.update,
    resource.answer,
  ];
  const create = change('POST', resource, '', `Create a new ${name}`, sent, answer);
  const update = change('PATCH', resource, '/{id}', updating(name), changes, answer);
  return { create, ...readable(resource), update, delete: remove(resource, '/{id}', `Delete one ${name}`) };
}

/** The history of something. */
function historyOf<End extends string, Q extends z.ZodObject>(of: Collection, below: End, summary: string, query: Q) {
  return { ...get(of, below, `${summary}, as JSON or text/csv`, HistoryAnswer), query, csv: 'points' };
}

function updating(name: string): string {
  return `Update one ${name}; absent members stay unchanged`;
}

/** The three operations of one module of a TLS edge. */
function edgeModule<B extends z.ZodType, A extends z.ZodType>(
  name: TlsEdgeModuleName,
  { body, answer }: { body: B; answer: A },
) {
  const below = `/{id}/${name}`;
  const what = `the ${name} module of a TLS edge`;
  return {
    replace: change('PUT', tlsEdges, below, `Replace ${what}`, body, answer),
    get: get(tlsEdges, below, `Get ${what}`, answer),
    delete: remove(tlsEdges, below, `Remove ${what}`),
  };
}

/** Sends a command to a session's agent. */
function sessionAction(
  action: 'restart' | 'stop' | 'update' | 'disconnect',
  summary = `Ask the agent of a tunnel session to ${action}`,
) {
  return { ...remove(tunnelSessions, `/{id}/${action}`, summary), method: 'POST' as const };
}

/** Changes the state of a device; answers with the device. */
function deviceAction(action: 'approve' | 'revoke' | 'rotate', summary: string) {
  return { ...get(devices, `/{id}/${action}`, summary, devices.answer), method: 'POST' as const };
}

/** Decides on events that a destination has refused; answers with the destination. */
function refusedEventAction(action: string, summary: string) {
  const { answer } = eventDestinations;
  return {
    ...change('POST', eventDestinations, `/{id}/${action}`, summary, RefusedEventChoice, answer),
    status: 200 as const,
  };
}

const SOURCES = '/{id}/sources';
const SOURCE = `${SOURCES}/{type}`;

/** Every operation of the API, by family. */
export const OPERATIONS = {
  reservedDomains: {
    ...writable(reservedDomains),
    detachCertificateManagementPolicy: remove(
      reservedDomains,
      '/{id}/certificate_management_policy',
      'Disable automatic certificates for a reserved domain, and detach the current one',
    ),
    detachCertificate: remove(
      reservedDomains,
      '/{id}/certificate',
      'Detach an uploaded certificate from a reserved domain; for an automatic one, detach its policy',
    ),
    detachHttpEndpointConfiguration: remove(
      reservedDomains,
      '/{id}/http_endpoint_configuration',
      'Detach the HTTP endpoint configuration of a reserved domain',
    ),
    detachHttpsEndpointConfiguration: remove(
      reservedDomains,
      '/{id}/https_endpoint_configuration',
      'Detach the HTTPS endpoint configuration of a reserved domain',
    ),
    checkDns: {
      ...get(
        reservedDomains,
        '/{id}/check_dns',
        "Look up the DNS records of a reserved domain now, with the gateway's resolver",
        DnsCheck,
      ),
      method: 'POST' as const,
    },
  },
  tlsEdges: writable(tlsEdges),
  tlsEdgeBackend: edgeModule('backend', tlsEdgeModules.backend),
  tlsEdgeIpRestriction: edgeModule('ip_restriction', tlsEdgeModules.ip_restriction),
  tlsEdgeMutualTls: edgeModule('mutual_tls', tlsEdgeModules.mutual_tls),
  tlsEdgeTlsTermination: edgeModule('tls_termination', tlsEdgeModules.tls_termination),
  tlsEdgeTrafficPolicy: edgeModule('traffic_policy', tlsEdgeModules.traffic_policy),
  botUsers: writable(botUsers),
  serviceUsers: writable(serviceUsers),
  httpResponseBackends: writable(httpResponseBackends),
  tunnelGroupBackends: writable(tunnelGroupBackends),
  ipPolicies: writable(ipPolicies),
  ipPolicyRules: writable(ipPolicyRules),
  ipRestrictions: writable(ipRestrictions),
  certificateAuthorities: writable(certificateAuthorities),
  tlsCertificates: writable(tlsCertificates),
  credentials: writable(credentials),
  apiKeys: writable(apiKeys),
  endpointConfigurations: writable(endpointConfigurations),
  enrolmentKeys: writable(enrolmentKeys),
  devices: {
    ...readable(devices),
    update: change('PATCH', devices, '/{id}', updating(devices.name), devices.update, devices.answer),
    delete: remove(devices, '/{id}', 'Delete one device with its authtoken; it can join again with a valid code'),
    approve: deviceAction('approve', 'Approve a device that waits for it'),
    revoke: deviceAction('revoke', 'Revoke the authtoken of a device; it cannot join again'),
    rotate: deviceAction('rotate', 'End the authtoken of a device, which fetches another one'),
    getHistory: historyOf(devices, '/{id}/history', 'Get the history of a device and its endpoints', HistoryQuery),
  },
  bulkActions: {
    ...readable(bulkActions),
    create: change(
      'POST',
      bulkActions,
      '',
      'Do something with many devices, one after another: those with these ids, or all that a filter chooses now',
      BulkActionCreate,
      bulkActions.answer,
    ),
    count: {
      ...change(
        'POST',
        bulkActions,
        '/count',
        'Count the devices of a bulk action; nothing is done',
        BulkCount,
        BulkCounted,
      ),
      status: 200 as const,
    },
    cancel: {
      ...get(bulkActions, '/{id}/cancel', 'End a bulk action; what is done stays', bulkActions.answer),
      method: 'POST' as const,
    },
  },
  vaults: {
    ...writable(vaults),
    listSecrets: listOf(
      vaults,
      '/{id}/secrets',
      'List the secrets of one vault, newest first',
      secrets.answer,
      secrets,
    ),
  },
  secrets: writable(secrets),
  people: {
    ...writable(people),
    createLink: change(
      'POST',
      people,
      '/{id}/link',
      'Create a link by which a person chooses a password or passkey, once; earlier links end',
      null,
      PersonLink,
    ),
    signOut: {
      ...remove(people, '/{id}/sign_out', 'End all sign-ins of a person, at all tunnels and in all browsers'),
      method: 'POST' as const,
    },
    listEndpoints: listOf(
      people,
      '/{id}/endpoints',
      'List the endpoints online whose policy lets a person sign in; other rules may let in fewer people',
      endpoints.answer,
      endpoints,
    ),
  },
  reservedAddrs: writable(reservedAddrs),
  shareLinks: {
    ...readable(shareLinks),
    create: change(
      'POST',
      shareLinks,
      '',
      'Create a link to an endpoint that is online and whose policy has the action gateway-share-links',
      ShareLinkCreate,
      shareLinks.answer,
    ),
    delete: remove(shareLinks, '/{id}', 'Delete one share link; browsers that have opened it are no longer let in'),
  },
  applicationUsers: {
    ...readable(applicationUsers),
    delete: remove(applicationUsers, '/{id}', 'End all sessions of one person, and forget the person'),
  },
  applicationSessions: {
    ...readable(applicationSessions),
    delete: remove(applicationSessions, '/{id}', 'End one session of a person'),
  },
  auditEvents: {
    ...readable(auditEvents),
    undo: {
      ...get(
        auditEvents,
        '/{id}/undo',
        'Undo the change of a traffic policy, by another change, whose event is answered',
        auditEvents.answer,
      ),
      method: 'POST' as const,
    },
  },
  eventDestinations: {
    ...writable(eventDestinations),
    listRefusedEvents: listOf(
      eventDestinations,
      '/{id}/refused_events',
      'List the events that a destination has refused',
      RefusedEvent,
      refusedEvents,
    ),
    sendAgain: refusedEventAction('send_again', 'Send refused events to their destination again: those chosen, or all'),
    letGo: refusedEventAction(
      'let_go',
      'Forget refused events, which their destination does not get: those chosen, or all',
    ),
    test: {
      ...change(
        'POST',
        eventDestinations,
        '/{id}/test',
        'Send a test message to an event destination now, and say what it answered',
        null,
        DestinationTest,
      ),
      status: 200 as const,
    },
  },
  messageRules: writable(messageRules),
  conditionHistory: {
    ...readable(conditionHistory),
    acknowledge: {
      ...get(
        conditionHistory,
        '/{id}/acknowledge',
        'Acknowledge a condition: no reminders come until it is over',
        ConditionRecord,
      ),
      method: 'POST' as const,
    },
    silence: {
      ...change(
        'POST',
        conditionHistory,
        '/{id}/silence',
        'Send no messages about a condition for a time, also when it begins again',
        ConditionSilence,
        ConditionRecord,
      ),
      status: 200 as const,
    },
  },
  eventSubscriptions: {
    ...writable(eventSubscriptions),
    getSources: {
      ...get(eventSubscriptions, SOURCES, 'List the types of an event subscription', EventSourceList),
      returns: 'sources' as const,
    },
    addSource: {
      ...change(
        'POST',
        eventSubscriptions,
        SOURCES,
        'Add a type to an event subscription, which applies from now on',
        EventSourceCreate,
        EventSource,
      ),
      takes: 'type' as const,
    },
    getSource: get(eventSubscriptions, SOURCE, 'Get one type of an event subscription', EventSource),
    updateSource: {
      ...change(
        'PATCH',
        eventSubscriptions,
        SOURCE,
        'Keep one type of an event subscription: a type is all it has',
        EventSourceUpdate,
        EventSource,
      ),
      takes: null,
    },
    removeSource: remove(eventSubscriptions, SOURCE, 'Remove one type of an event subscription'),
  },
  endpoints: {
    ...writable(endpoints),
    getHistory: historyOf(endpoints, '/{id}/history', 'Get the history of an endpoint that is online', HistoryQuery),
    getTopRequests: get(
      endpoints,
      '/{id}/top_requests',
      'Get the most frequent paths, client networks and statuses of an endpoint in the last hour',
      TopRequests,
    ),
  },
  history: {
    get: historyOf(
      { path: '/history', idPrefix: '' },
      '',
      'Get the history of all endpoints together, or of one, which need not be online',
      GatewayHistoryQuery,
    ),
  },
  tunnels: readable(tunnels),
  tunnelSessions: {
    ...readable(tunnelSessions),
    restart: sessionAction('restart'),
    stop: sessionAction('stop'),
    update: sessionAction('update'),
    disconnect: sessionAction('disconnect', 'End a tunnel session; its agent connects again'),
  },
};

type ListedIn<Family> = Family extends { list: { resource: infer R } } ? R : never;

/** The resources that the API lists, by the names of their families. */
export type Resources = {
  [Name in keyof typeof OPERATIONS as ListedIn<(typeof OPERATIONS)[Name]> extends never ? never : Name]: ListedIn<
    (typeof OPERATIONS)[Name]
  >;
};

/** Every resource that the API lists, by the name of its family. */
export const RESOURCES = Object.fromEntries(
  Object.entries<Record<string, Operation>>(OPERATIONS).flatMap(([family, { list }]) =>
    list?.resource ? [[family, list.resource]] : [],
  ),
) as Resources;

/** All operations with their ids, for example `botUsers.create`. */
export function allOperations(): { id: string; family: string; operation: Operation }[] {
  return Object.entries<Record<string, Operation>>(OPERATIONS).flatMap(([family, operations]) =>
    Object.entries(operations).map(([name, operation]) => ({ id: `${family}.${name}`, family, operation })),
  );
}

/** The operations of a kind of resource. */
export interface OperationFamily {
  /** `botUsers` */
  name: string;
  operations: Readonly<Record<string, Operation>>;
  /** Parts of each resource, with operations of their own. */
  modules: readonly OperationFamily[];
}

/** All families, as the client has them: the modules of TLS edges, such as `tlsEdgeBackend`, are below these as `backend`. */
export function operationFamilies(): OperationFamily[] {
  const all = Object.entries<OperationFamily['operations']>(OPERATIONS);
  const modules = all.flatMap(([family, operations]) => {
    const [, first, rest] = /^tlsEdge([A-Z])(\w*)$/.exec(family) ?? [];
    return first === undefined ? [] : [{ family, name: first.toLowerCase() + rest, operations, modules: [] }];
  });
  return all
    .filter(([name]) => modules.every(({ family }) => family !== name))
    .map(([name, operations]) => ({ name, operations, modules: name === 'tlsEdges' ? modules : [] }));
}
