import { type CelInput, celList, celMap } from '@bufbuild/cel';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { AsnResponse, CityResponse, CountryResponse } from 'maxmind';
import type { PolicyScope } from '../policy-subjects.ts';
import { CERTIFICATE_FIELDS } from './certificate-variables.ts';

/** What databases of locations and networks have of an address; null where they have nothing. */
export interface AddressRecords {
  readonly location: Partial<CityResponse & CountryResponse> | null;
  readonly network: Partial<AsnResponse> | null;
}

type Names = Readonly<Record<string, CelInput>>;

const PLACE = ['city', 'continent', 'country', 'country_code', 'metro_code', 'subdivision', 'timezone'];
const POINT = ['latitude', 'longitude', 'postal_code', 'radius'];

/** Values of an address that no database has, by the rest of their names after `conn.client_ip.`. */
export const UNKNOWN_ADDRESS: Names = addressVariables({ location: null, network: null });

/** Of the location of the client's address, those that are also below `conn.geo.`. */
const SHORT_NAMES = ['city', 'country', 'country_code', 'latitude', 'longitude', 'radius', 'subdivision'];

/** The variables that databases have of an address, by the rest of their names after `conn.client_ip.`. */
export function addressVariables({ location: found, network }: AddressRecords): Names {
  const { city, continent, country, location: point, postal, registered_country: registered } = found ?? {};
  const texts: Record<string, string | number | undefined> = {
    city: city?.names.en,
    continent: continent?.names.en,
    country: country?.names.en,
    country_code: country?.iso_code,
    latitude: point?.latitude,
    longitude: point?.longitude,
    metro_code: point?.metro_code,
    postal_code: postal?.code,
    radius: point?.accuracy_radius,
    subdivision: found?.subdivisions?.[0]?.names.en,
    timezone: point?.time_zone,
  };
  // Databases know the country only in which a network is registered.
  const registry: typeof texts = { country: registered?.names.en, country_code: registered?.iso_code };
  const named = (place: string, names: readonly string[], values: typeof texts): [string, CelInput][] =>
    names.map((name) => [`geo.${place}.${name}`, String(values[name] ?? '')]);
  return Object.fromEntries<CelInput>([
    ...named('location', [...PLACE, ...POINT], texts),
    ...named('registered_location', PLACE, registry),
    ['geo.location.is_eu', country?.is_in_european_union === true],
    ['geo.registered_location.is_eu', registered?.is_in_european_union === true],
    ['as.number', BigInt(network?.autonomous_system_number ?? 0)],
    ['as.organization', network?.autonomous_system_organization ?? ''],
  ]);
}

export type VariableTable = Readonly<Record<string, (scope: PolicyScope) => CelInput | undefined>>;

const HANDSHAKE_VARIABLES: VariableTable = {
  'conn.tls.version': ({ connection }) => connection.tls?.version ?? '',
  'conn.tls.sni': ({ connection }) => connection.tls?.sni ?? '',
  'conn.tls.cipher_suite': ({ connection }) => connection.tls?.cipherSuite ?? '',
  ...certificateTable('client'),
  ...certificateTable('server'),
};

/** Variables that have no value before the handshake, and where there is none. */
export const CERTIFICATE_VARIABLES: readonly string[] = (['client', 'server'] as const).flatMap((side) =>
  Object.keys(certificateTable(side)),
);

/** Variables that only the handshake decides. */
export const NEGOTIATED_VARIABLES: readonly string[] = [
  ...CERTIFICATE_VARIABLES,
  'conn.tls.version',
  'conn.tls.cipher_suite',
  'conn.tls.negotiated_alpn',
];

export function terminationName(name: string): string {
  return name.replace('conn.tls', 'actions.ngrok.terminate_tls');
}

export const CONNECTION_VARIABLES: VariableTable = {
  'conn.client_ip': ({ connection }) => connection.clientIp,
  'conn.client_port': ({ connection }) => BigInt(connection.clientPort),
  'conn.server_ip': ({ connection }) => connection.serverIp,
  'conn.server_port': ({ connection }) => BigInt(connection.serverPort),
  'conn.server_region': () => '',
  'conn.bytes_in': ({ connection }) => BigInt(connection.bytesIn()),
  'conn.bytes_out': ({ connection }) => BigInt(connection.bytesOut()),
  'conn.ts.start': ({ connection }) => timestampFromMs(connection.startedAt),
  'conn.ts.end': () => undefined,
  ...HANDSHAKE_VARIABLES,
  'conn.tls.negotiated_alpn': ({ connection }) => connection.tls?.alpn ?? '',
  'conn.tls.ja4_fingerprint': ({ connection }) => connection.tls?.ja4 ?? '',
  'conn.tls.session_resumed': () => false,
  ...addressTable(),
  ...emptyPodTable(),
  'endpoint.addr': ({ endpoint }) => `${endpoint.host}:${endpoint.port}`,
  'endpoint.host': ({ endpoint }) => endpoint.host,
  'endpoint.id': ({ endpoint }) => endpoint.id,
  'endpoint.port': ({ endpoint }) => BigInt(endpoint.port),
  'endpoint.protocol': ({ endpoint }) => endpoint.protocol,
  'endpoint.url': ({ endpoint }) => endpoint.url,
  'time.now': (scope) => new Date(scope.now()).toISOString(),
  vars: (scope) => scope.vars,
  actions: (scope) => scope.actions,
  ...terminationTable(),
};

function certificateTable(side: 'client' | 'server'): VariableTable {
  const read = (field: string) => [
    `conn.tls.${side}.${field}`,
    (scope: PolicyScope) => scope.certificate(side)?.[field],
  ];
  return Object.fromEntries(CERTIFICATE_FIELDS.map(read));
}

/** The results of terminate-tls: the handshake that it asked for has happened since. */
function terminationTable(): VariableTable {
  const action = 'actions.ngrok.terminate_tls';
  const table: VariableTable = {
    [action]: (scope) => scope.result('terminate_tls'),
    ...Object.fromEntries(Object.entries(HANDSHAKE_VARIABLES).map(([name, read]) => [terminationName(name), read])),
    // Without a handshake there is no request that could read them.
    ...Object.fromEntries(
      ['error_code', 'error_message', 'error.code', 'error.message'].map((name) => [`${action}.${name}`, () => '']),
    ),
    // About identifiers of authorities; unknown ones are refused.
    [`${action}.warnings`]: () => NOTHING,
  };
  return Object.fromEntries(
    Object.entries(table).map(([name, read]) => [
      name,
      (scope: PolicyScope) => (scope.result('terminate_tls') === undefined ? undefined : read(scope)),
    ]),
  );
}

/** Variables that need databases of locations and networks; empty without them, as those that no such database has. */
function addressTable(): VariableTable {
  const table: Record<string, (scope: PolicyScope) => CelInput | undefined> = {};
  for (const side of ['client', 'server'] as const) {
    const name = `conn.${side}_ip`;
    for (const rest of Object.keys(UNKNOWN_ADDRESS)) table[`${name}.${rest}`] = (scope) => scope.address(side)[rest];
    table[`${name}.is_on_blocklist`] = () => false;
    table[`${name}.is_tor_node`] = () => false;
    table[`${name}.categories`] = () => NOTHING;
  }
  for (const name of SHORT_NAMES)
    table[`conn.geo.${name}`] = (scope) => scope.address('client')[`geo.location.${name}`];
  return table;
}

/** The gateway runs in no cluster of Kubernetes. */
function emptyPodTable(): VariableTable {
  const names = ['id', 'metadata.name', 'metadata.namespace', 'metadata.error_code', 'metadata.error_message'];
  return {
    ...Object.fromEntries(names.map((name) => [`conn.k8s.pod.${name}`, () => ''])),
    'conn.k8s.pod.metadata.annotations': () => EMPTY,
  };
}

const NOTHING = celList([]);
const EMPTY = celMap(new Map());
