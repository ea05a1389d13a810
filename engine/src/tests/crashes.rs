//! The readers of all files on bytes that nobody wrote: errors, never a panic. Checksums are made right afterwards, so
//! that the bytes are looked at.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_base::io::{Io, MemoryIo, OpenMode};

use crate::api::Database;
use crate::checkpoint::format::{BLOCK_HEADER_BYTES, image_seed};
use crate::checkpoint::manifest::{image_path, manifest_name};
use crate::checkpoint::{
    CheckpointError, ChunkHeader, ChunkImage, ImageWriter, Images, Manifest, ManifestBuilder,
};
use crate::options::Options;
use crate::row::{Column, Type};
use crate::schema::{PastChange, PastColumns, StoredTable, decode_catalog, encode_catalog};
use crate::{IndexSchema, TableSchema};

const DATABASE: [u8; 16] = [4; 16];

fn dir() -> &'static Path {
    Path::new("/db/checkpoint")
}

/// An image file with one image, and the manifest that names it.
fn checkpoint() -> (MemoryIo, ChunkImage) {
    let memory = MemoryIo::new();
    let io: Arc<dyn Io> = Arc::new(memory.clone());
    let mut pace = |_| {};
    let mut writer = ImageWriter::create(&io, dir(), &DATABASE, 1, &mut pace).expect("a file");
    writer.begin(ChunkHeader {
        table: TableId(1),
        chunk: 0,
        timestamp: Timestamp(7),
        replay: Lsn(8),
        schema_version: 1,
    });
    for slot in 0..5 {
        writer.row(slot, Timestamp(3), &[slot as u8; 20]).expect("a row");
    }
    let image = writer.end().expect("an image");
    let file = writer.finish().expect("a file");
    let mut builder = ManifestBuilder::new(&Manifest::empty(DATABASE));
    builder.add_file(file);
    builder.put(image);
    let catalog = catalog();
    let manifest = builder.build(|manifest| manifest.catalog = catalog, Lsn(8));
    assert_eq!(manifest.sequence, 1);
    manifest.write(&memory, dir()).expect("a manifest");
    (memory, image)
}

/// An encoded catalog.
fn catalog() -> Vec<u8> {
    static CATALOG: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    CATALOG.get_or_init(encode_some_catalog).clone()
}

fn encode_some_catalog() -> Vec<u8> {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8).auto_increment())
        .column(Column::new("d", Type::Decimal { precision: 9, scale: 2 }).nullable())
        .column(Column::new("n", Type::Int4).default(5))
        .column(Column::new("v", Type::Varchar(20)))
        .primary_key(IndexSchema::hash("key", &["id"]))
        .index(IndexSchema::ordered("by_v", &["v", "id"]).descending("v").unique());
    db.create_table(schema).expect("a table");
    let inner = db.inner();
    let guard = inner.epochs.pin();
    inner.catalog.encode(&guard)
}

#[test]
fn catalogs_of_older_versions_are_read() {
    let bytes = catalog();
    let (tables, ..) = decode_catalog(&bytes).expect("a catalog");
    // One table: version 2 has no time of its own at which it was emptied, nor past columns at the end.
    // Nor has version 4 a storage, which follows the id.
    let storage = 1 + 3 * 4 + 4;
    let bytes = [&bytes[..storage], &bytes[storage + 4..]].concat();
    let mut fourth = bytes.clone();
    fourth[0] = 4;
    let (found, ..) = decode_catalog(&fourth).expect("a catalog of version 4");
    assert_eq!(found, tables);
    let (version, emptied) = (0, 1 + 3 * 4 + 2 * 4 + 8);
    let mut older = [&bytes[..emptied], &bytes[emptied + 8..bytes.len() - 4]].concat();
    older[version] = 2;
    let (found, ..) = decode_catalog(&older).expect("a catalog of version 2");
    assert_eq!(found, tables);
    older[emptied - 8] = 9;
    let (found, ..) = decode_catalog(&older).expect("a catalog of version 2");
    assert_eq!((found[0].since, found[0].emptied), (Timestamp(9), Timestamp(9)));
}

#[test]
fn past_columns_are_kept_and_lead_to_the_present_ones() {
    let (mut tables, next_table, next_index) = decode_catalog(&catalog()).expect("a catalog");
    let columns = tables[0].schema.columns.clone();
    let past = |until: u64, columns: &[Column], change: PastChange| PastColumns {
        version: until as u32,
        until: Timestamp(until),
        columns: columns.to_vec(),
        change,
    };
    let with = |past: Vec<PastColumns>, tables: &mut Vec<StoredTable>| {
        tables[0].past = past;
        decode_catalog(&encode_catalog(tables, next_table, next_index)).map(|(tables, ..)| tables)
    };
    // A column was added, one dropped, and another one added.
    let first = &columns[..columns.len() - 1];
    use PastChange::{Added, Dropped, Renamed};
    let mut renamed = columns.clone();
    renamed[0].name = "other".to_owned();
    let lead = vec![
        past(3, first, Added),
        past(4, &renamed, Renamed),
        past(5, &columns, Dropped(1)),
        past(8, first, Added),
    ];
    let found = with(lead.clone(), &mut tables).expect("they lead there");
    assert_eq!(found, tables);
    let bad = [
        lead[..3].to_vec(),
        vec![past(6, first, Added), past(5, &columns, Dropped(1)), past(8, first, Added)],
        vec![past(3, &columns, Dropped(columns.len() as u32))],
        vec![past(3, first, Renamed)],
    ];
    for bad in bad {
        assert!(with(bad.clone(), &mut tables).is_err(), "{bad:?}");
    }
}

/// Changes some bytes, and cuts or lengthens.
fn mutate(bytes: &mut Vec<u8>, from: usize, changes: &[(usize, u8)], len: Option<usize>) {
    for &(at, byte) in changes {
        let span = bytes.len() - from;
        bytes[from + at % span] = byte;
    }
    if let Some(len) = len {
        let span = bytes.len() - from;
        bytes.resize(from + len % (2 * span), 0xA5);
    }
}

fn replace(io: &MemoryIo, path: &Path, bytes: &[u8]) {
    let file = io.open(path, OpenMode::Create).expect("it opens");
    file.set_len(0).and_then(|()| file.write_at(0, bytes)).expect("it is written");
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6)
}

proptest! {
    #[test]
    fn manifests_of_any_bytes(changes in changes(), len in proptest::option::of(any::<usize>())) {
        let (io, _) = checkpoint();
        let path = dir().join(manifest_name(1));
        let mut bytes = io.files().remove(&path).expect("it is there");
        mutate(&mut bytes, 32, &changes, len);
        let sum = crc32c_append(Seed::new(&DATABASE, 1).at(0), &bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        replace(&io, &path, &bytes);
        match Manifest::read_newest(&io, dir(), &DATABASE) {
            Ok(Some(manifest)) => _ = decode_catalog(&manifest.catalog),
            Ok(None) => prop_assert!(false, "a manifest is there"),
            Err(error) => prop_assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}"),
        }
    }

    #[test]
    fn catalogs_of_any_bytes(changes in changes(), len in proptest::option::of(any::<usize>())) {
        let mut bytes = catalog();
        mutate(&mut bytes, 0, &changes, len);
        let _ = decode_catalog(&bytes);
    }

    #[test]
    fn catalogs_of_noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_catalog(&bytes);
    }

    #[test]
    fn images_of_any_bytes(changes in changes(), len in proptest::option::of(any::<usize>())) {
        let (io, image) = checkpoint();
        let path = image_path(dir(), 1);
        let mut bytes = io.files().remove(&path).expect("it is there");
        let start = image.offset as usize;
        mutate(&mut bytes, start, &changes, len);
        if bytes.len() >= start + BLOCK_HEADER_BYTES {
            let (head, sum) = (start..start + BLOCK_HEADER_BYTES - 4, start + BLOCK_HEADER_BYTES - 4);
            let claimed = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().expect("four bytes"));
            let end = (start + BLOCK_HEADER_BYTES).saturating_add(claimed as usize).min(bytes.len());
            let crc = crc32c_append(image_seed(&DATABASE, 1).at(image.offset), &bytes[head]);
            let crc = crc32c_append(crc, &bytes[start + BLOCK_HEADER_BYTES..end]);
            bytes[sum..sum + 4].copy_from_slice(&crc.to_le_bytes());
        }
        replace(&io, &path, &bytes);
        let images = Images::new(Arc::new(io), dir().to_path_buf(), DATABASE);
        let mut rows = 0;
        let outcome = images.load(&image, &mut Vec::new(), |_, _, _| {
            rows += 1;
            Ok::<(), CheckpointError>(())
        });
        prop_assert!(outcome.is_err() || rows == 5);
    }
}
