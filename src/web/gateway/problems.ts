import type { Attention, NeedsAttention } from '../../gateway/api/dashboard/overview.ts';
import type { Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { spanSince } from '../ui/time-span.ts';
import { dateOf } from './cells.tsx';
import { fleet } from './fleet-strings.ts';
import { searchLink } from './search-address.ts';
import type { SectionName } from './section.ts';
import { nameOfAuthority } from './sections/certificate-authorities.tsx';
import { DEVICE_TONES } from './sections/devices.tsx';
import { certificateOf } from './sections/domains.tsx';
import { nameOfCertificate } from './sections/tls-certificates.tsx';
import { nameOfEdge } from './sections/tls-edges.tsx';
import { gateway } from './strings.ts';

const text = gateway.overview;

/** What an operator should do something about. */
export interface Problem {
  id: string;
  title: string;
  detail: string;
  link: string;
}

/** Problems of one kind. */
export interface ProblemGroup {
  kind: keyof NeedsAttention;
  tone: Tone;
  label: string;
  first: readonly Problem[];
  /** How many more there are. */
  more: number;
  /** Where all of them are: the link, and in words. */
  all: string;
  where: string;
}

/** All problems in words, those that stop traffic first. */
export function problemGroups(attention: NeedsAttention): ProblemGroup[] {
  return (Object.keys(WORDS) as (keyof NeedsAttention)[])
    .map((kind) => groupOf(kind, attention))
    .filter(({ first }) => first.length > 0);
}

type ItemOf<Kind extends keyof NeedsAttention> = NeedsAttention[Kind]['first'][number];

interface Words<Item> {
  tone: Tone;
  label: string;
  section: SectionName;
  /** Finds them in the list of the section. */
  search?: string;
  /** The dialog that helps. */
  action?: string;
  of: (item: Item) => { title: string; detail: string };
}

const { status } = fleet.devices;

const WORDS: { [Kind in keyof NeedsAttention]: Words<ItemOf<Kind>> } = {
  expired: {
    tone: 'bad',
    label: text.label.expired,
    section: 'certificates',
    of: (certificate) => {
      const date = dateOf(certificate.not_after);
      const detail = certificate.issued_at === null ? text.expiredDetail(date) : text.notRenewed(date);
      return { title: text.expired(nameOfCertificate(certificate)), detail };
    },
  },
  expiredAuthorities: {
    tone: 'bad',
    label: text.label.expired,
    section: 'authorities',
    of: (authority) => ({
      title: text.expired(nameOfAuthority(authority)),
      detail: text.authorityDetail(dateOf(authority.not_after)),
    }),
  },
  failedDomains: {
    tone: 'bad',
    label: fleet.domains.certificateState.failed,
    section: 'domains',
    search: fleet.domains.certificateState.failed,
    of: (domain) => ({
      title: domain.certificate === null ? text.noCertificate(domain.domain) : text.noRenewal(domain.domain),
      detail: certificateOf(domain).detail ?? '',
    }),
  },
  idleEdges: {
    tone: 'bad',
    label: text.label.offline,
    section: 'edges',
    of: (edge) => {
      const name = nameOfEdge(edge);
      return edge.hasGroup
        ? { title: text.noTunnels(name), detail: text.noTunnelsDetail }
        : { title: text.noBackend(name), detail: text.noBackendDetail };
    },
  },
  offline: {
    tone: DEVICE_TONES.offline,
    label: status.offline,
    section: 'devices',
    search: status.offline,
    of: ({ name, last_seen_at, created_at }) => ({
      title: text.offline(name),
      detail: text.offlineSince(spanSince(last_seen_at ?? created_at)),
    }),
  },
  expiring: {
    tone: 'warning',
    label: text.label.expires,
    section: 'certificates',
    of: (certificate) => ({
      title: text.expires(nameOfCertificate(certificate)),
      detail: text.expiresDetail(dateOf(certificate.not_after)),
    }),
  },
  neverOnline: {
    tone: DEVICE_TONES.never,
    label: status.never,
    section: 'devices',
    search: status.never,
    of: ({ name }) => ({ title: text.offline(name), detail: text.neverOnline }),
  },
  pending: {
    tone: DEVICE_TONES.pending,
    label: status.pending,
    section: 'devices',
    search: status.pending,
    action: 'approve',
    of: ({ name, created_at }) => ({
      title: text.pending(name),
      detail: text.pendingDetail(spanSince(created_at)),
    }),
  },
};

function groupOf<Kind extends keyof NeedsAttention>(kind: Kind, attention: NeedsAttention): ProblemGroup {
  const { total, first }: Attention<ItemOf<Kind>> = attention[kind];
  const { tone, label, section, search = '', action, of } = WORDS[kind];
  return {
    kind,
    tone,
    label,
    first: first.map((item) => ({
      id: item.id,
      ...of(item),
      link: linkTo(section, item.id, ...(action === undefined ? [] : [action])),
    })),
    more: total - first.length,
    all: searchLink(section, search),
    where: text.where(gateway.sections[section], search),
  };
}
