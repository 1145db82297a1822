import { type CertificateAuthority, certificateAuthorities } from '../../management/resources/certificate-authority.ts';
import { WRONG_VALUE } from '../../management/resources/refusal.ts';
import { type TlsCertificate, tlsCertificates } from '../../management/resources/tls-certificate.ts';
import { readAuthority, readKeyPair } from '../certificates/uploads.ts';
import type { CertificateAuthorityRow } from '../store/certificate-authorities.ts';
import { changed } from '../store/changed.ts';
import type { TlsCertificateRow } from '../store/tls-certificates.ts';
import type { ApiContext } from './context.ts';
import { deleteUnlessUsed } from './delete-unless-used.ts';
import { refuse } from './refuse.ts';
import { type Actions, found } from './resource-router.ts';

export function tlsCertificateActions({ store, links }: ApiContext): Actions<typeof tlsCertificates> {
  const { database, tlsCertificates: rows } = store;
  const shown = ({ private_key: _, facts, ...row }: TlsCertificateRow): TlsCertificate => ({
    ...row,
    uri: links.of(tlsCertificates, row.id),
    ...facts,
  });
  const stored = (id: string) => found(rows.get(id), tlsCertificates);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map(shown),
    async create({ description = null, metadata = null, certificate_pem, private_key_pem }) {
      const { leaf, key } = readKeyPair(certificate_pem, private_key_pem);
      const facts = (await loadFacts()).certificateFacts(leaf, key);
      return database.write(() => {
        const common = { id: store.ids.next('cert'), created_at: store.now(), description, metadata };
        return shown(rows.insertWithKey({ ...common, certificate_pem, facts, issued_at: null }, private_key_pem));
      });
    },
    update: (id, body) =>
      database.write(() => {
        const row = changed(stored(id), body);
        rows.update(row);
        return shown(row);
      }),
    remove: (id) =>
      database.write(() => {
        if (stored(id).issued_at !== null) {
          throw refuse(400, 1966, "The certificate belongs to a reserved domain's management policy.");
        }
        deleteUnlessUsed(() => rows.delete(id), WRONG_VALUE, 'A reserved domain still uses this certificate.');
      }),
  };
}

export function certificateAuthorityActions({ store, links }: ApiContext): Actions<typeof certificateAuthorities> {
  const { database, certificateAuthorities: rows } = store;
  const shown = ({ facts, ...row }: CertificateAuthorityRow): CertificateAuthority => ({
    ...row,
    uri: links.of(certificateAuthorities, row.id),
    ...facts,
  });
  const stored = (id: string) => found(rows.get(id), certificateAuthorities);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map(shown),
    async create({ description = null, metadata = null, ca_pem }) {
      const certificate = readAuthority(ca_pem);
      const facts = (await loadFacts()).authorityFacts(certificate);
      return database.write(() => {
        const row = { id: store.ids.next('ca'), created_at: store.now(), description, metadata, ca_pem, facts };
        rows.insert(row);
        return shown(row);
      });
    },
    update: (id, body) =>
      database.write(() => {
        const row = changed(stored(id), body);
        rows.update(row);
        return shown(row);
      }),
    remove: (id) =>
      database.write(() => {
        stored(id);
        deleteUnlessUsed(() => rows.delete(id), WRONG_VALUE, 'A TLS edge still uses this certificate authority.');
      }),
  };
}

/** X.509 extensions take a library of 7 MB in memory: loaded when the first certificate comes. */
function loadFacts(): Promise<typeof import('../certificates/certificate-facts.ts')> {
  return import('../certificates/certificate-facts.ts');
}
