import type { CelInput } from '@bufbuild/cel';
import type { AsnResponse, CityResponse, CountryResponse } from 'maxmind';

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
export const SHORT_NAMES = ['city', 'country', 'country_code', 'latitude', 'longitude', 'radius', 'subdivision'];

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
