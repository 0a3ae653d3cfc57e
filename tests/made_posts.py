# ruff: noqa: E501 (sentences of many languages)
"""Posts of made words in many languages, in three themes, and the boxes that sites put around them."""

from __future__ import annotations

import random
from typing import Final, NamedTuple


class Language(NamedTuple):
    """What a site in a language says besides its posts."""

    letters: str
    """Of which words are made."""
    form: str
    """Of comments."""
    consent: str
    subscription: str


LANGUAGES: Final = {
    "en": Language(
        "abcdefghiklmnoprstuvw",
        "Leave a Reply. Your email address will not be published. Required fields are marked. Comment Name Email"
        " Website. Save my name, email, and website in this browser for the next time I comment.",
        "We and our partners use cookies to store and access personal data. You may accept or reject all cookies,"
        " or manage your preferences at any time in our privacy policy.",
        "Subscribe to our newsletter. Enter your email address to receive notifications of new posts by email.",
    ),
    "de": Language(
        "abdefghiklmnorstuwzäöü",
        "Schreibe einen Kommentar. Deine E-Mail-Adresse wird nicht veröffentlicht. Erforderliche Felder sind mit *"
        " markiert. Kommentar Name E-Mail-Adresse Website. Meinen Namen in diesem Browser speichern.",
        "Wir und unsere Partner verwenden Cookies. Sie können alle akzeptieren oder ablehnen und Ihre Einwilligung"
        " jederzeit in den Einstellungen widerrufen. Datenschutz und Impressum.",
        "Newsletter abonnieren. Gib deine E-Mail-Adresse ein, um über neue Beiträge benachrichtigt zu werden.",
    ),
    "fr": Language(
        "abcdefgilmnoprstuvéèà",
        "Laisser un commentaire. Votre adresse e-mail ne sera pas publiée. Les champs obligatoires sont indiqués"
        " avec *. Commentaire Nom E-mail Site web. Enregistrer mon nom dans le navigateur.",
        "Nous utilisons des cookies avec nos partenaires. Vous pouvez accepter ou refuser tous les cookies et"
        " paramétrer votre consentement. Politique de confidentialité.",
        "Abonnez-vous à notre newsletter. Saisissez votre adresse e-mail pour recevoir les nouveaux articles.",
    ),
    "es": Language(
        "abcdefgilmnopqrstuvñó",
        "Deja una respuesta. Tu dirección de correo electrónico no será publicada. Los campos obligatorios están"
        " marcados con *. Comentario Nombre Correo electrónico Web. Guarda mi nombre en este navegador.",
        "Usamos cookies propias y de nuestros socios. Puedes aceptar o rechazar todas las cookies o configurar tu"
        " consentimiento. Política de privacidad.",
        "Suscríbete a nuestro boletín. Introduce tu correo electrónico para recibir las nuevas entradas.",
    ),
    "pt": Language(
        "abcdefgilmnopqrstuvãç",
        "Deixe um comentário. O seu endereço de e-mail não será publicado. Campos obrigatórios são marcados com *."
        " Comentário Nome E-mail Site. Salvar meus dados neste navegador.",
        "Usamos cookies com os nossos parceiros. Pode aceitar ou rejeitar todos os cookies ou gerir o seu"
        " consentimento. Política de privacidade.",
        "Assine a nossa newsletter. Digite o seu endereço de e-mail para receber as novas publicações.",
    ),
    "it": Language(
        "abcdefgilmnopqrstuvzì",
        "Lascia un commento. Il tuo indirizzo email non sarà pubblicato. I campi obbligatori sono contrassegnati *."
        " Commento Nome Email Sito web. Salva il mio nome in questo browser.",
        "Noi e i nostri partner usiamo i cookie. Puoi accettare o rifiutare tutti i cookie o gestire le preferenze"
        " del tuo consenso. Informativa sulla riservatezza.",
        "Iscriviti alla nostra newsletter. Inserisci la tua email per ricevere i nuovi articoli.",
    ),
    "nl": Language(
        "abdeghijklmnoprstuvwz",
        "Geef een reactie. Je e-mailadres wordt niet gepubliceerd. Vereiste velden zijn gemarkeerd met *. Reactie"
        " Naam E-mail Site. Bewaar mijn naam in deze browser.",
        "Wij en onze partners gebruiken cookies. U kunt alle cookies accepteren of weigeren en uw voorkeuren en"
        " toestemming wijzigen. Privacybeleid.",
        "Abonneren op de nieuwsbrief. Vul je e-mailadres in om nieuwe berichten te ontvangen.",
    ),
    "sv": Language(
        "abdefghijklmnoprstuvåäö",
        "Lämna ett svar. Din e-postadress kommer inte publiceras. Obligatoriska fält är märkta *. Kommentar Namn"
        " E-postadress Webbplats. Spara mitt namn i denna webbläsare.",
        "Vi och våra partner använder cookies. Du kan godkänna eller avvisa alla cookies och ändra ditt samtycke i"
        " inställningar. Integritetspolicy.",
        "Prenumerera på vårt nyhetsbrev. Ange din e-postadress för att få nya inlägg.",
    ),
    "pl": Language(
        "abcdegijklmnoprstuwyząęł",
        "Dodaj komentarz. Twój adres e-mail nie zostanie opublikowany. Wymagane pola są oznaczone *. Komentarz"
        " Nazwa Adres e-mail Witryna. Zapamiętaj moje dane w tej przeglądarce.",
        "My i nasi partnerzy używamy plików cookies. Możesz zaakceptować lub odrzucić wszystkie ciasteczka i"
        " zmienić zgodę w ustawieniach. Polityka prywatności.",
        "Subskrybuj newsletter. Podaj adres e-mail, aby otrzymywać nowe wpisy.",
    ),
    "cs": Language(
        "abcdefhijklmnoprstuvyzěšč",
        "Napsat komentář. Vaše e-mailová adresa nebude zveřejněna. Vyžadované informace jsou označeny *. Komentář"
        " Jméno E-mail Webová stránka. Uložit do prohlížeče jméno.",
        "My a naši partneři používáme cookies. Můžete přijmout nebo odmítnout všechny cookies a změnit souhlas v"
        " nastavení. Ochrana soukromí.",
        "Odebírat newsletter. Zadejte e-mail a dostávejte nové články.",
    ),
    "tr": Language(
        "abcdefghıiklmnoprstuvyz",
        "Bir yanıt yazın. E-posta adresiniz yayınlanmayacak. Gerekli alanlar * ile işaretlenmişlerdir. Yorum İsim"
        " E-posta İnternet sitesi. Adım bu tarayıcıya kaydedilsin.",
        "Biz ve ortaklarımız çerez kullanıyoruz. Tüm çerezleri kabul veya reddet, onay tercihlerini değiştir."
        " Gizlilik politikası.",
        "Bültenimize abone olun. Yeni yazıları almak için e-posta adresinizi girin.",
    ),
    "id": Language(
        "abdeghijklmnoprstuwy",
        "Tinggalkan Balasan. Alamat email Anda tidak akan dipublikasikan. Ruas yang wajib ditandai *. Komentar Nama"
        " Email Situs Web. Simpan nama saya pada peramban ini.",
        "Kami dan mitra kami menggunakan cookie. Anda dapat menerima atau tolak semua cookie dan mengubah"
        " persetujuan Anda. Kebijakan privasi.",
        "Berlangganan newsletter kami. Masukkan alamat email untuk menerima pos baru.",
    ),
    "ru": Language(
        "абвгдежзиклмнопрстуфхцыя",
        "Добавить комментарий. Ваш адрес email не будет опубликован. Обязательные поля помечены *. Комментарий Имя"
        " Email Сайт. Сохранить моё имя в этом браузере.",
        "Мы и наши партнёры используем файлы cookie. Вы можете принять или отклонить все файлы и изменить согласие."
        " Политика конфиденциальности.",
        "Подпишитесь на рассылку. Введите адрес почты, чтобы получать новые записи.",
    ),
    "uk": Language(
        "абвгдежзиіклмнопрстуфхця",
        "Залишити коментар. Ваша e-mail адреса не оприлюднюватиметься. Обов'язкові поля позначені *. Коментар Ім'я"
        " Email Сайт. Зберегти моє ім'я в цьому браузері.",
        "Ми та наші партнери використовуємо файли cookie. Ви можете прийняти або відхилити всі файли. Згода та"
        " політика конфіденційності.",
        "Підпишіться на розсилку. Введіть адресу пошти, щоб отримувати нові записи.",
    ),
    "el": Language(
        "αβγδεζηθικλμνοπρστυφχω",
        "Αφήστε μια απάντηση. Η ηλ. διεύθυνση σας δεν δημοσιεύεται. Τα υποχρεωτικά πεδία σημειώνονται με *. Σχόλιο"
        " Όνομα Email Ιστότοπος. Αποθήκευσε το όνομά μου.",
        "Εμείς και οι συνεργάτες μας χρησιμοποιούμε cookies. Αποδοχή ή απόρριψη όλων των cookies και συγκατάθεση."
        " Πολιτική απορρήτου.",
        "Εγγραφή στο ενημερωτικό δελτίο. Δώστε το email σας για να λαμβάνετε νέα άρθρα.",
    ),
    "ar": Language(
        "ابتجحدرسشصعفقكلمنهوي",
        "اترك تعليقاً. لن يتم نشر عنوان بريدك الإلكتروني. الحقول الإلزامية مشار إليها بـ *. التعليق الاسم البريد"
        " الموقع. احفظ اسمي في هذا المتصفح.",
        "نستخدم نحن وشركاؤنا ملفات تعريف الارتباط. يمكنك قبول أو رفض جميع ملفات الكوكيز وتغيير الموافقة. سياسة"
        " الخصوصية.",
        "اشترك في النشرة البريدية. أدخل بريدك الإلكتروني لتصلك المقالات الجديدة.",
    ),
    "he": Language(
        "אבגדהוחטיכלמנסעפצקרשת",
        "כתיבת תגובה. האימייל לא יוצג באתר. שדות החובה מסומנים *. התגובה שלך שם אימייל אתר. שמור בדפדפן זה את השם.",
        "אנחנו והשותפים שלנו משתמשים בעוגיות. אפשר לתת הסכמה או דחייה של כל העוגיות. מדיניות פרטיות ואישור.",
        "הרשמה לניוזלטר. הזינו כתובת אימייל כדי לקבל פוסטים חדשים.",
    ),
    "hi": Language(
        "कखगचजटडतदनपबमयरलवसह",
        "एक उत्तर दें। आपका ईमेल पता प्रकाशित नहीं किया जाएगा। आवश्यक फ़ील्ड चिह्नित हैं *। टिप्पणी नाम ईमेल वेबसाइट।"
        " इस ब्राउज़र में मेरा नाम सहेजें।",
        "हम और हमारे साझेदार कुकीज़ का उपयोग करते हैं। सभी कुकीज़ स्वीकार या अस्वीकार करें और सहमति बदलें। गोपनीयता"
        " नीति।",
        "न्यूज़लेटर की सदस्यता लें। नई पोस्ट पाने के लिए अपना ईमेल पता दर्ज करें।",
    ),
    "ja": Language(
        "港朝霧船灯台波風空山川町駅道雪花鳥月星海",
        "コメントを残す。メールアドレスが公開されることはありません。必須項目には印が付いています。コメント 名前 メール"
        " サイト。次回のコメントで使用するためブラウザーに保存する。",
        "当社とパートナーはクッキーを使用します。すべてのクッキーに同意または拒否できます。設定の変更とプライバシー。",
        "ニュースレターを購読する。メールアドレスを登録すると新しい投稿が届きます。",
    ),
    "zh": Language(
        "港晨雾船塔浪风空山川城站路雪花鸟月星海",
        "发表回复。您的邮箱地址不会被公开。必填项已用标注。评论 显示名称 邮箱 网站。在此浏览器中保存我的显示名称。",
        "我们和合作伙伴使用偏好设置。您可以接受或拒绝所有内容并更改同意。隐私政策。",
        "订阅我们的简报。输入您的电子邮件地址以接收新文章的通知。",
    ),
}  # fmt: skip


def words(language: Language, number: int, seed: int) -> list[str]:
    """Different words, of the language's letters."""
    chosen = random.Random(seed)
    sizes = (1, 3) if language.letters[0] > "\u3000" else (3, 9)
    return ["".join(chosen.choices(language.letters, k=chosen.randint(*sizes))) for _ in range(number)]


def sentences(language: Language, number: int, seed: int) -> str:
    """A text of so many words."""
    chosen, rest, parts = random.Random(seed), words(language, number, seed), []
    space, stop = ("", "。") if language.letters[0] > "\u3000" else (" ", ". ")
    while rest:
        size = chosen.randint(6, 14)
        parts.append(space.join(rest[:size]) + stop)
        rest = rest[size:]
    return "".join(parts)


def form(language: Language) -> str:
    return (
        f'<div id="respond" class="comment-respond"><form action="/wp-comments-post.php" id="commentform"'
        f' class="comment-form"><p>{language.form}</p><textarea name="comment"></textarea><input name="author">'
        f'<input name="email"><button>OK</button></form></div>'
    )


def consent(language: Language) -> str:
    return f'<div id="onetrust-consent-sdk"><div role="dialog"><p>{language.consent}</p><button>OK</button></div></div>'


def subscription(language: Language) -> str:
    return (
        f'<section class="widget widget_subscription"><form action="/subscribe"><p>{language.subscription}</p>'
        f'<input type="email"><button>OK</button></form></section>'
    )


BOXES: Final = {"form": form, "consent": consent, "subscription": subscription}


def page(theme: int, title: str, paragraphs: list[str], menu: list[str], box: str = "") -> str:
    """A post in one of three themes, with a box after it."""
    return framed(theme, title, "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs), menu, box)


def framed(theme: int, title: str, text: str, menu: list[str], box: str = "") -> str:
    """A page with this HTML as its text."""
    links = "".join(f'<li><a href="/{place}">{name}</a></li>' for place, name in enumerate(menu))
    head = f"<!doctype html><html><head><title>{title} | {menu[0]}</title></head>"
    if theme == 0:
        body = (
            f"<header><nav><ul>{links}</ul></nav></header><main><article><h1>{title}</h1>{text}</article>{box}</main>"
            f"<footer><p>{menu[0]} 2024</p></footer>"
        )
    elif theme == 1:
        body = (
            f'<div id="page"><div id="header"><div class="menu"><ul>{links}</ul></div></div><div id="content">'
            f'<div class="post hentry"><h2 class="entry-title">{title}</h2><div class="entry-content">{text}</div>'
            f'</div>{box}</div><div id="sidebar" class="widget-area"><ul>{links}</ul></div></div>'
        )
    else:
        body = (
            f"<table><tr><td><ul>{links}</ul></td><td><h3>{title}</h3>{text}{box}</td></tr></table>"
            f"<div class='footer'>{menu[0]}</div>"
        )
    return f"{head}<body>{body}</body></html>"
