import type { CertificateAuthority } from '../../management/resources/certificate-authority.ts';
import type { Device } from '../../management/resources/device.ts';
import type { ReservedDomain } from '../../management/resources/reserved-domain.ts';
import type { TlsCertificate } from '../../management/resources/tls-certificate.ts';
import type { TlsEdge } from '../../management/resources/tls-edge.ts';
import type { TunnelGroupBackend } from '../../management/resources/tunnel-group-backend.ts';
import type { Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { spanSince } from '../ui/time-span.ts';
import { dateOf } from './cells.tsx';
import { fleet } from './fleet-strings.ts';
import { DEVICE_TONES, stateOf } from './sections/devices.tsx';
import { certificateOf } from './sections/domains.tsx';
import { certificatesSection, validityOf } from './sections/tls-certificates.tsx';
import { nameOfEdge } from './sections/tls-edges.tsx';
import { gateway } from './strings.ts';

const text = gateway.overview;

/** What an operator should do something about. */
export interface Problem {
  key: string;
  tone: Tone;
  label: string;
  title: string;
  detail: string;
  link: string;
}

/** What is checked for problems. */
export interface Checked {
  devices: readonly Device[];
  domains: readonly ReservedDomain[];
  certificates: readonly TlsCertificate[];
  authorities: readonly CertificateAuthority[];
  edges: readonly TlsEdge[];
  /** Null while not all are known. */
  tunnelGroups: readonly TunnelGroupBackend[] | null;
}

/** All problems, those that stop traffic first. */
export function findProblems(checked: Checked): Problem[] {
  const { devices, domains, certificates, authorities, edges, tunnelGroups } = checked;
  const used = new Set(domains.map(({ certificate }) => certificate?.id));
  const groups = tunnelGroups && new Map(tunnelGroups.map((group) => [group.id, group]));
  const all = [
    ...certificates.flatMap((each) => problemOfCertificate(each, used.has(each.id))),
    ...authorities.flatMap(problemOfAuthority),
    ...domains.flatMap(problemOfDomain),
    ...(groups ? edges.flatMap((edge) => problemOfEdge(edge, groups)) : []),
    ...devices.flatMap(problemOfDevice),
  ];
  return [...all.filter(({ tone }) => tone === 'bad'), ...all.filter(({ tone }) => tone !== 'bad')];
}

/** Automatic ones are renewed before; uploaded ones matter where a domain uses them. */
function problemOfCertificate(certificate: TlsCertificate, isUsed: boolean): Problem[] {
  const validity = validityOf(certificate);
  const isAutomatic = certificate.issued_at !== null;
  if (validity === 'valid' || (isAutomatic ? validity === 'soon' : !isUsed)) return [];
  const name = certificatesSection.nameOf(certificate);
  const date = dateOf(certificate.not_after);
  const link = linkTo('certificates', certificate.id);
  return validity === 'expired'
    ? [
        {
          key: certificate.id,
          tone: 'bad',
          label: text.label.expired,
          title: text.expired(name),
          detail: isAutomatic ? text.notRenewed(date) : text.expiredDetail(date),
          link,
        },
      ]
    : [
        {
          key: certificate.id,
          tone: 'warning',
          label: text.label.expires,
          title: text.expires(name),
          detail: text.expiresDetail(date),
          link,
        },
      ];
}

function problemOfAuthority(authority: CertificateAuthority): Problem[] {
  if (validityOf(authority) !== 'expired') return [];
  const { id, subject_common_name, description, not_after } = authority;
  return [
    {
      key: id,
      tone: 'bad',
      label: text.label.expired,
      title: text.expired(subject_common_name || description || id),
      detail: text.authorityDetail(dateOf(not_after)),
      link: linkTo('authorities', id),
    },
  ];
}

function problemOfDomain(domain: ReservedDomain): Problem[] {
  const { tone, label, detail } = certificateOf(domain);
  if (tone !== 'bad') return [];
  const title = domain.certificate === null ? text.noCertificate(domain.domain) : text.noRenewal(domain.domain);
  return [{ key: domain.id, tone, label, title, detail: detail ?? '', link: linkTo('domains', domain.id) }];
}

function problemOfEdge(edge: TlsEdge, groups: ReadonlyMap<string, TunnelGroupBackend>): Problem[] {
  const { backend, hostports } = edge;
  if (!backend?.enabled || !hostports?.length || !backend.backend.id.startsWith('bkdtg_')) return [];
  const group = groups.get(backend.backend.id);
  if (group && group.tunnels.length > 0) return [];
  const name = nameOfEdge(edge);
  const words = group
    ? { title: text.noTunnels(name), detail: text.noTunnelsDetail }
    : { title: text.noBackend(name), detail: text.noBackendDetail };
  return [{ key: edge.id, tone: 'bad', label: text.label.offline, ...words, link: linkTo('edges', edge.id) }];
}

function problemOfDevice(device: Device): Problem[] {
  const { id, name, last_seen_at, created_at } = device;
  const state = stateOf(device);
  const label = fleet.devices.status[state];
  if (state === 'pending') {
    const link = linkTo('devices', id, 'approve');
    const detail = text.pendingDetail(spanSince(created_at));
    return [{ key: id, tone: 'warning', label, title: text.pending(name), detail, link }];
  }
  if (state !== 'offline' && state !== 'never') return [];
  const detail = last_seen_at === null ? text.neverOnline : text.offlineSince(spanSince(last_seen_at));
  const tone = DEVICE_TONES[state];
  return [{ key: id, tone, label, title: text.offline(name), detail, link: linkTo('devices', id) }];
}
